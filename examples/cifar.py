"""Trains VGG or ResNet on CIFAR-10 with sparse or dense synchronisation.

    mpiexec -n 4 python examples/cifar.py --data DIR --model resnet20 --sync spardl --density 0.01 --epochs 10
    mpiexec -n 4 python examples/cifar.py --data DIR --model vgg16 --checkpoint vgg16.pt --resume

``--batch`` counts the images of all ranks together, so that the learning rate need not follow the number of ranks.
Everything random depends on ``--seed`` and the epoch alone: a run that was interrupted and resumed ends with the same
bits as one that was not. It may go on with another number of ranks, then with other bits. cifar_data.py says what
``--data`` has to hold.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cifar_data
import numpy as np
import torch
from models import MODELS
from mpi4py import MPI
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import spardl.torch as spt
from spardl.bench import outputs

comm = MPI.COMM_WORLD
console = Console(quiet=comm.rank > 0)  # rank 0 does the talking


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--data", type=Path, required=True, metavar="DIR", help="where CIFAR-10 is")
    flags.add_argument("--model", choices=MODELS, default="resnet20", help="default: %(default)s")
    flags.add_argument("--sync", choices=("spardl", "dense"), default="spardl", help="default: %(default)s")
    flags.add_argument("--density", type=float, default=0.01, help="share of gradients to send (default: %(default)s)")
    flags.add_argument("--teams", type=int, default=1, help="teams of ranks, to save rounds (default: %(default)s)")
    flags.add_argument("--epochs", type=int, default=10, help="length of the schedule (default: %(default)s)")
    flags.add_argument("--stop-after", type=int, metavar="EPOCHS", help="stop early, as if interrupted there")
    flags.add_argument("--batch", type=int, default=128, help="images per step, on all ranks (default: %(default)s)")
    flags.add_argument("--lr", type=float, default=0.1, help="learning rate at the start (default: %(default)s)")
    flags.add_argument("--images", type=int, metavar="N", help="train on the first N images only")
    flags.add_argument("--test-images", type=int, metavar="N", help="test with the first N images only")
    flags.add_argument("--seed", type=int, default=0, help="of weights and order (default: %(default)s)")
    flags.add_argument("--threads", type=int, default=1, help="torch's, on each rank (default: %(default)s)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write the results to this file")
    flags.add_argument("--checkpoint", type=Path, metavar="PATH", help="write this file after each epoch")
    flags.add_argument("--resume", action="store_true", help="go on from --checkpoint, if it is there")
    args = flags.parse_args()
    if args.resume and args.checkpoint is None:
        flags.error("--resume needs --checkpoint")
    if args.batch < comm.size:
        flags.error(f"--batch {args.batch} leaves some of {comm.size} ranks without an image")
    if trouble := outputs.trouble_ahead(comm, args.json):  # now, and not after hours of training
        flags.error(trouble)
    return args


# -- training ----------------------------------------------------------------------------------------------------------


def cosine(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """From the optimizer's learning rate to zero in so many steps."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * step / steps))


def train_epoch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> float:
    """The mean loss over batches and ranks. Nothing here knows that there are other ranks, but for that mean."""
    model.train()
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()  # here gradients are the mean over ranks: distribute() has seen to it
        scheduler.step()
        losses.append(loss.item())
    return comm.allreduce(float(np.mean(losses))) / comm.size


@torch.no_grad()
def evaluate(model: torch.nn.Module, images: cifar_data.Images, labels: cifar_data.Labels) -> tuple[float, float]:
    """Accuracy and mean loss; every rank tests its share of the images."""
    model.eval()
    totals = np.zeros(3)
    for start in range(comm.rank, len(images), 250 * comm.size):
        part = slice(start, start + 250 * comm.size, comm.size)
        found, truth = model(cifar_data.normalised(images[part])), torch.from_numpy(labels[part])
        loss = torch.nn.functional.cross_entropy(found, truth, reduction="sum")
        totals += [int((found.argmax(1) == truth).sum()), float(loss), len(truth)]
    comm.Allreduce(MPI.IN_PLACE, totals)
    return float(totals[0] / totals[2]), float(totals[1] / totals[2])


# -- checkpoints -------------------------------------------------------------------------------------------------------


def save(path: Path, parts: dict[str, Any], handle: spt.Handle, history: list[dict[str, Any]]) -> None:
    """Rank 0 writes one file for all. Under another name first, so that a job killed meanwhile keeps its last."""
    gathered = handle.gathered_state_dict()  # what the ranks have not sent yet; they all have to call this
    if comm.rank == 0:
        state = {name: part.state_dict() for name, part in parts.items()} | {"handle": gathered, "history": history}
        unfinished = path.with_name(f"{path.name}.unfinished")
        torch.save(state, unfinished)
        os.replace(unfinished, path)


def load(path: Path | None) -> dict[str, Any]:
    """The checkpoint, on all ranks; nothing if there is none yet, which rank 0 decides for all."""
    if path is None or not comm.bcast(path.exists()):
        return {}
    return torch.load(path, map_location="cpu", weights_only=True)


# -- results -----------------------------------------------------------------------------------------------------------


def summary(args: argparse.Namespace, handle: spt.Handle, history: list[dict[str, Any]]) -> dict[str, Any]:
    """What this run came to; the traffic is the busiest rank's."""
    stats = max(comm.allgather(handle.stats.as_dict()), key=lambda stats: stats["bytes_sent"])
    last = history[-1] if history else {}
    seconds = sum(epoch["seconds"] for epoch in history)
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    return {"ranks": comm.size, "settings": settings, **last, "seconds": seconds, "epochs": history, "stats": stats}


def show(result: dict[str, Any]) -> None:
    settings, stats = result["settings"], result["stats"]
    sync = "dense" if settings["sync"] == "dense" else f"SparDL, density {settings['density']:g}"
    table = Table("", caption="bytes since resuming" if settings["resume"] else None)
    table.add_column(f"{settings['model']}, {sync}, {result['ranks']} ranks", justify="right")
    if result["epochs"]:
        table.add_row("test accuracy", f"{result['test_accuracy']:.2%}")
        table.add_row("test loss", f"{result['test_loss']:.4f}")
        table.add_row("training loss, last epoch", f"{result['train_loss']:.4f}")
        table.add_row("time to train", f"{result['seconds']:.1f} s")
    table.add_row("bytes sent per rank", f"{stats['bytes_sent']:,}")
    table.add_row("the best dense all-reduce", f"{stats['dense_bytes']:,}")
    table.add_row("compression", f"{stats['compression']:.1f} x")
    console.print(table)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    data = cifar_data.load_shared(comm, args.data, args.images, args.test_images)
    steps = len(data.train_images) // args.batch
    if steps == 0:
        text = f"{len(data.train_images)} training images do not fill one --batch of {args.batch}"
        raise SystemExit(text if comm.rank == 0 else 1)

    torch.manual_seed(args.seed)
    model = MODELS[args.model](data.classes)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=5e-4)
    scheduler = cosine(optimizer, args.epochs * steps)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    checkpoint = load(args.checkpoint if args.resume else None)
    if checkpoint:
        for name, part in parts.items():
            part.load_state_dict(checkpoint[name])
    history: list[dict[str, Any]] = checkpoint.get("history", [])

    # The one line that makes this script parallel.
    sync = spt.Dense() if args.sync == "dense" else spt.SparDL(density=args.density, teams=args.teams)
    handle = spt.distribute(optimizer, model, sync=sync)
    if checkpoint:
        handle.load_state_dict(checkpoint["handle"])
    if args.resume:
        console.print(f"going on after epoch {len(history)}" if checkpoint else f"no {args.checkpoint} yet: starting")

    count = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"{args.model}: {count:,} parameters, {steps} steps per epoch, {comm.size} ranks", highlight=False)
    with Progress(console=console, disable=comm.rank > 0, transient=True) as progress:
        bar = progress.add_task("", total=steps)
        for epoch in range(len(history), min(args.epochs, args.stop_after or args.epochs)):
            shard = {"seed": args.seed, "epoch": epoch, "rank": comm.rank, "ranks": comm.size}
            batches = cifar_data.training_batches(data.train_images, data.train_labels, args.batch, **shard)
            progress.reset(bar, description=f"epoch {epoch + 1}")
            started = time.perf_counter()
            loss = train_epoch(model, optimizer, scheduler, progress.track(batches, steps, task_id=bar))
            seconds = time.perf_counter() - started
            handle.broadcast_buffers()  # ranks have seen other images, so their batch norms differ
            accuracy, test_loss = evaluate(model, data.test_images, data.test_labels)
            history.append({"train_loss": loss, "test_accuracy": accuracy, "test_loss": test_loss, "seconds": seconds})
            console.print(
                f"epoch {epoch + 1:3} of {args.epochs}: training loss {loss:.4f}, test accuracy {accuracy:.2%}, "
                f"{seconds:.1f} s",
                highlight=False,
            )
            if args.checkpoint is not None:
                save(args.checkpoint, parts, handle, history)

    result = summary(args, handle, history)
    show(result)
    if args.json is not None and comm.rank == 0:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
