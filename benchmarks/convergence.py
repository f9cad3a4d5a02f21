"""How fast ResNet-20 learns under each way of collecting residuals, and with dense synchronisation.

    mpiexec -n 4 python benchmarks/convergence.py --data DIR --images 8000 --epochs 12 --seeds 1 2 --dense \\
        --json convergence.json --plot convergence.png

The comparison of the SparDL paper's figure 8, shortened. "global" keeps everything that is not sent. "partial" forgets
what is dropped after it was sent, if other ranks' entries bring its index into the result. "local" forgets all that is
dropped after it was sent, and keeps only what a rank did not send.

All contenders of a seed start from the same weights and see the same images in the same order. JSON is written after
each of them: a run that is stopped leaves what it has. examples/cifar_data.py says what --data has to hold.
"""

import argparse
import sys
import time
from pathlib import Path

import arguments
import numpy as np
import torch
from mpi4py import MPI

import spardl.torch as spt
from spardl import kernels
from spardl.bench import outputs, record
from spardl.bench.figure import new_figure, save
from spardl.bench.table import Column, Row, print_table
from spardl.residual import POLICIES

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import cifar  # the training loop
import cifar_data
from models import MODELS

comm = MPI.COMM_WORLD


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    flags.add_argument("--data", required=True, metavar="DIR", help="where CIFAR-10 is")
    flags.add_argument("--model", choices=MODELS, default="resnet20", help="default: %(default)s")
    flags.add_argument("--images", type=int, default=8000, help="to train on (default: %(default)s)")
    flags.add_argument("--test-images", type=int, default=2000, help="to test with (default: %(default)s)")
    flags.add_argument("--epochs", type=int, default=12, help="default: %(default)s")
    flags.add_argument("--batch", type=int, default=128, help="images per step, on all ranks (default: %(default)s)")
    flags.add_argument("--lr", type=float, default=0.1, help="learning rate at the start (default: %(default)s)")
    flags.add_argument("--density", type=float, default=0.01, help="share of gradients to send (default: %(default)s)")
    flags.add_argument("--warmup-epochs", type=int, default=0, help="with falling density (default: %(default)s)")
    flags.add_argument("--teams", type=int, default=1, help="default: %(default)s")
    flags.add_argument(
        "--residual", nargs="*", choices=POLICIES, default=list(POLICIES), help="policies (default: all)"
    )
    flags.add_argument("--dense", action="store_true", help="also with dense synchronisation")
    flags.add_argument("--seeds", nargs="+", type=int, default=[1], help="runs of everything (default: 1)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write what was measured to this file")
    flags.add_argument("--plot", type=Path, metavar="PATH", help="draw accuracy and loss over epochs to this file")
    args = flags.parse_args()
    if trouble := outputs.trouble_ahead(comm, args.json, picture=args.plot):  # now, and not after hours of training
        flags.error(trouble)
    if not comm.size <= args.batch <= args.images:
        flags.error(f"--batch {args.batch}: expected at least the {comm.size} ranks, at most --images {args.images}")
    return args


# -- training ----------------------------------------------------------------------------------------------------------


def sync_of(name: str, args: argparse.Namespace, steps: int) -> spt.Dense | spt.SparDL:
    if name == "dense":
        return spt.Dense()
    density = spt.Warmup(args.density, steps=args.warmup_epochs * steps) if args.warmup_epochs else args.density
    return spt.SparDL(density=density, teams=args.teams, residual=name)


def train(name: str, seed: int, args: argparse.Namespace, data: cifar_data.Cifar) -> Row:
    """One contender, from the seed's weights through all epochs."""
    steps = len(data.train_images) // args.batch
    torch.manual_seed(seed)
    model = MODELS[args.model](data.classes)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=5e-4)
    scheduler = cifar.cosine(optimizer, args.epochs * steps)
    handle = spt.distribute(optimizer, model, sync=sync_of(name, args, steps))
    accuracies, losses, seconds = [], [], []
    for epoch in range(args.epochs):
        shard = {"seed": seed, "epoch": epoch, "rank": comm.rank, "ranks": comm.size}
        batches = cifar_data.training_batches(data.train_images, data.train_labels, args.batch, **shard)
        started = time.perf_counter()
        losses.append(cifar.train_epoch(model, optimizer, scheduler, batches))
        seconds.append(time.perf_counter() - started)
        handle.broadcast_buffers()
        accuracies.append(cifar.evaluate(model, data.test_images, data.test_labels)[0])
        if comm.rank == 0:
            print(
                f"{name}, seed {seed}, epoch {epoch + 1} of {args.epochs}: test accuracy {accuracies[-1]:.4f}, "
                f"training loss {losses[-1]:.4f}, {seconds[-1]:.1f} s",
                file=sys.stderr,
                flush=True,
            )
    stats = handle.stats
    handle.remove()
    return {
        "what": name,
        "seed": seed,
        "final_accuracy": accuracies[-1],
        "best_accuracy": max(accuracies),
        "last_loss": losses[-1],
        "seconds_per_epoch": float(np.median(seconds)),
        "bytes_per_dense": comm.allreduce(stats.bytes_sent, MPI.MAX) / max(stats.dense_bytes, 1),
        "accuracy": accuracies,
        "loss": losses,
        "seconds": seconds,
    }


# -- showing -----------------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("residual", "what"),
    Column("seed", "seed"),
    Column("final accuracy", "final_accuracy", ".4f"),
    Column("best accuracy", "best_accuracy", ".4f"),
    Column("loss, last epoch", "last_loss", ".4f"),
    Column("s per epoch", "seconds_per_epoch", ".1f"),
    Column("bytes / dense", "bytes_per_dense", ".4f"),
)


def means(rows: list[Row]) -> list[Row]:
    """One row per contender, over its seeds."""
    keys = [column.key for column in COLUMNS if column.spec]
    return [
        {"what": name, "seed": "mean", **{key: float(np.mean([row[key] for row in group])) for key in keys}}
        for name, group in by_name(rows).items()
    ]


def by_name(rows: list[Row]) -> dict[str, list[Row]]:
    return {name: [row for row in rows if row["what"] == name] for name in dict.fromkeys(row["what"] for row in rows)}


def draw(path: Path, rows: list[Row], title: str) -> None:
    """A line per contender: the mean over seeds, and the range around it."""
    figure = new_figure(11, 4.2)
    axes = figure.subplots(1, 2)
    for axis, key, label in zip(axes, ("accuracy", "loss"), ("test accuracy", "training loss"), strict=True):
        for name, group in by_name(rows).items():
            curves = np.array([row[key] for row in group])
            epochs = np.arange(1, curves.shape[1] + 1)
            (line,) = axis.plot(epochs, curves.mean(0), "--" if name == "dense" else "-", label=name)
            axis.fill_between(epochs, curves.min(0), curves.max(0), color=line.get_color(), alpha=0.15, linewidth=0)
        axis.set(xlabel="epoch", ylabel=label)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.suptitle(title)
    save(figure, path)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)  # ranks share the cores
    data = cifar_data.load_shared(comm, Path(args.data), args.images, args.test_images)
    facts = record.machine(kernels.load("auto").name) | {"torch": torch.__version__}
    rows: list[Row] = []
    for seed in args.seeds:
        for name in [*args.residual, *(["dense"] if args.dense else [])]:
            rows.append(train(name, seed, args, data))
            if comm.rank == 0:
                arguments.write_json(args, facts, rows, launcher=f"mpiexec -n {comm.size}", ranks=comm.size)
    if comm.rank == 0:
        title = f"{args.model}, {len(data.train_images):,} images, {comm.size} ranks, density {args.density:g}"
        listed = [*rows, *means(rows)] if len(args.seeds) > 1 else rows
        print_table(title, COLUMNS, listed, caption=record.describe(facts))
        if args.plot is not None:
            draw(args.plot, rows, title)


if __name__ == "__main__":
    main()
