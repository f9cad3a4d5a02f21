"""Trains an LSTM to classify texts of very different lengths, where ranks have unequal work in every step.

    mpiexec -n 4 python examples/lstm.py
    mpiexec -n 4 python examples/lstm.py --sparse-embedding
    mpiexec -n 4 python examples/lstm.py --data reviews.tsv --epochs 3

Without ``--data`` the texts are made up: each has keywords of its class among other words, and keywords of other
classes behind a "not", so order counts. ``--data`` is a UTF-8 file with a line ``label<TAB>text`` for each text.

With ``--sparse-embedding`` the embedding's gradient holds only the rows of words that occurred. spardl sends these rows
exactly, and nothing of the vocabulary's size; SGD can apply them as long as that group has no momentum.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from mpi4py import MPI
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

import spardl.torch as spt
from spardl.bench import outputs

comm = MPI.COMM_WORLD
console = Console(quiet=comm.rank > 0)  # rank 0 does the talking

UNKNOWN = 0  # the word number of all words that are not in the vocabulary
MOMENTUM = 0.9


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument(
        "--data", type=Path, metavar="FILE", help="lines of label<TAB>text; without it texts are made up"
    )
    flags.add_argument("--texts", type=int, default=5000, help="how many to make up (default: %(default)s)")
    flags.add_argument("--length", type=int, default=12, help="words of a typical one of them (default: %(default)s)")
    flags.add_argument("--vocabulary", type=int, default=20000, help="most frequent words (default: %(default)s)")
    flags.add_argument("--longest", type=int, default=400, help="words of a text to read (default: %(default)s)")
    flags.add_argument("--width", type=int, default=48, help="of embedding and LSTM (default: %(default)s)")
    flags.add_argument("--sparse-embedding", action="store_true", help="only rows of words that occurred are sent")
    flags.add_argument("--sync", choices=("spardl", "dense"), default="spardl", help="default: %(default)s")
    flags.add_argument("--density", type=float, default=0.05, help="share of gradients to send (default: %(default)s)")
    flags.add_argument("--teams", type=int, default=1, help="teams of ranks, to save rounds (default: %(default)s)")
    flags.add_argument("--epochs", type=int, default=4, help="default: %(default)s")
    flags.add_argument("--batch", type=int, default=32, help="texts per step, on all ranks (default: %(default)s)")
    flags.add_argument("--lr", type=float, default=0.1, help="learning rate (default: %(default)s)")
    flags.add_argument("--seed", type=int, default=0, help="of weights, order and texts (default: %(default)s)")
    flags.add_argument("--threads", type=int, default=1, help="torch's, on each rank (default: %(default)s)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write the results to this file")
    args = flags.parse_args()
    if args.batch < comm.size:
        flags.error(f"--batch {args.batch} leaves some of {comm.size} ranks without a text")
    if trouble := outputs.trouble_ahead(comm, args.json):  # now, and not after hours of training
        flags.error(trouble)
    return args


def stop(text: str) -> NoReturn:
    """All ranks come to the same conclusion, and one says so."""
    raise SystemExit(text if comm.rank == 0 else 1)


# -- texts -------------------------------------------------------------------------------------------------------------


def made_up(count: int, length: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of label and text. Most texts are short and some are long, as with reviews or messages."""
    rng = np.random.default_rng(seed)
    classes, keywords_each, fillers = 4, 8, 2000
    pairs = []
    for _ in range(count):
        label = int(rng.integers(classes))
        size = int(length * min(rng.lognormal(0, 0.8), 8))
        words = [f"word{number}" for number in rng.integers(fillers, size=size)]
        other = (label + int(rng.integers(1, classes))) % classes
        for phrase in [label] * int(rng.integers(1, 4)) + [other] * int(rng.integers(3)):
            keyword = f"key{phrase}.{rng.integers(keywords_each)}"
            words.insert(int(rng.integers(len(words) + 1)), keyword if phrase == label else f"not {keyword}")
        pairs.append((f"class{label}", " ".join(words)))
    return pairs


def read(path: Path) -> list[tuple[str, str]]:
    pairs = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            label, tab, text = line.rstrip("\n").partition("\t")
            if not tab or not text.split():
                stop(f"{path}, line {number}: expected label<TAB>text, got {line[:60]!r}")
            pairs.append((label, text))
    return pairs


class Texts(NamedTuple):
    train: list[tuple[int, torch.Tensor]]  # label and words, as numbers
    test: list[tuple[int, torch.Tensor]]
    words: int
    classes: int


def prepared(pairs: Sequence[tuple[str, str]], args: argparse.Namespace) -> Texts:
    """Every tenth text is for testing. Word numbers come from the others alone, and are the same on all ranks."""
    order = np.random.default_rng(args.seed).permutation(len(pairs))
    test, train = order[: len(pairs) // 10], order[len(pairs) // 10 :]
    counts = Counter(word for index in train for word in pairs[index][1].lower().split())
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[: args.vocabulary]
    numbers = {word: number for number, word in enumerate(frequent, UNKNOWN + 1)}
    classes = {label: number for number, label in enumerate(sorted({label for label, _ in pairs}))}

    def encoded(index: int) -> tuple[int, torch.Tensor]:
        label, text = pairs[index]
        words = [numbers.get(word, UNKNOWN) for word in text.lower().split()[: args.longest]]
        return classes[label], torch.tensor(words)

    return Texts([encoded(i) for i in train], [encoded(i) for i in test], len(numbers) + 1, len(classes))


# -- model -------------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    def __init__(self, words: int, width: int, classes: int, sparse: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, sparse=sparse)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.output = nn.Linear(width, classes)

    def forward(self, texts: list[torch.Tensor]) -> torch.Tensor:
        lengths = torch.tensor([len(text) for text in texts])
        embedded = self.embedding(pad_sequence(texts, batch_first=True))
        states, _ = self.lstm(pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False))
        # The mean over a text's own words: what was noticed early need not be remembered to the end.
        padded, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        return self.output(padded.sum(1) / lengths[:, None])


def build(args: argparse.Namespace, texts: Texts) -> tuple[Classifier, torch.optim.Optimizer]:
    torch.manual_seed(args.seed)
    model = Classifier(texts.words, args.width, texts.classes, args.sparse_embedding)
    others = [p for name, p in model.named_parameters() if not name.startswith("embedding.")]
    # In the long run momentum multiplies steps by 1 / (1 - momentum); the embedding goes as far without it.
    embedding = {"params": model.embedding.parameters(), "momentum": 0.0, "lr": args.lr / (1 - MOMENTUM)}
    return model, torch.optim.SGD([embedding, {"params": others}], args.lr, momentum=MOMENTUM)


# -- training ----------------------------------------------------------------------------------------------------------


def train_epoch(
    model: Classifier,
    optimizer: torch.optim.Optimizer,
    handle: spt.Handle,
    texts: Texts,
    args: argparse.Namespace,
    epoch: int,
) -> tuple[float, list[int]]:
    """The mean loss over batches and ranks, and how many words this rank had in each step."""
    model.train()
    clipped = [p for name, p in model.named_parameters() if not name.startswith("embedding.")]
    order = np.random.default_rng([args.seed, epoch]).permutation(len(texts.train))  # the same on all ranks
    losses, words = [], []
    for start in range(0, len(order) - args.batch + 1, args.batch):
        # Lengths are left to chance: in every step another rank has the longest texts, and the others wait for it.
        labels, mine = zip(
            *(texts.train[i] for i in order[start + comm.rank : start + args.batch : comm.size]), strict=True
        )
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(mine), torch.tensor(labels))
        loss.backward()
        handle.synchronize()  # from here on gradients are the mean over ranks, so all ranks clip alike
        nn.utils.clip_grad_norm_(clipped, 1.0)
        optimizer.step()
        losses.append(loss.item())
        words.append(sum(map(len, mine)))
    return comm.allreduce(float(np.mean(losses))) / comm.size, words


@torch.no_grad()
def evaluate(model: Classifier, tests: Sequence[tuple[int, torch.Tensor]]) -> tuple[float, float]:
    """Accuracy and mean loss; every rank tests its share."""
    model.eval()
    totals = np.zeros(3)
    shortest_first = sorted(tests[comm.rank :: comm.size], key=lambda test: len(test[1]))  # little padding
    for start in range(0, len(shortest_first), 100):
        labels, texts = zip(*shortest_first[start : start + 100], strict=True)
        found, truth = model(texts), torch.tensor(labels)
        loss = nn.functional.cross_entropy(found, truth, reduction="sum")
        totals += [int((found.argmax(1) == truth).sum()), float(loss), len(truth)]
    comm.Allreduce(MPI.IN_PLACE, totals)
    return float(totals[0] / totals[2]), float(totals[1] / totals[2])


# -- results -----------------------------------------------------------------------------------------------------------


def summary(
    args: argparse.Namespace, handle: spt.Handle, history: list[dict[str, Any]], words: list[int]
) -> dict[str, Any]:
    """What the run came to; the traffic is the busiest rank's."""
    stats = max(comm.allgather(handle.stats.as_dict()), key=lambda stats: stats["bytes_sent"])
    by_rank = np.array(comm.allgather(words))
    seconds = sum(epoch["seconds"] for epoch in history)
    waited = comm.allreduce(handle.stats.wait_seconds) / comm.size
    return {
        "ranks": comm.size,
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()},
        **history[-1],
        "seconds": seconds,
        "most_to_least_words": float(np.mean(by_rank.max(0) / by_rank.min(0))),
        "waited": waited / seconds,
        "epochs": history,
        "stats": stats,
    }


def show(result: dict[str, Any]) -> None:
    settings, stats = result["settings"], result["stats"]
    sync = "dense" if settings["sync"] == "dense" else f"SparDL, density {settings['density']:g}"
    rows = ", sparse rows" if settings["sparse_embedding"] else ""
    table = Table("")
    table.add_column(f"{sync}{rows}, {result['ranks']} ranks", justify="right")
    table.add_row("test accuracy", f"{result['test_accuracy']:.2%}")
    table.add_row("test loss", f"{result['test_loss']:.4f}")
    table.add_row("training loss, last epoch", f"{result['train_loss']:.4f}")
    table.add_row("time to train", f"{result['seconds']:.1f} s")
    table.add_row("words of a step, most / least", f"{result['most_to_least_words']:.1f} x")
    table.add_row("waited for other ranks", f"{result['waited']:.1%}")
    table.add_row("bytes sent per rank", f"{stats['bytes_sent']:,}")
    table.add_row("the best dense all-reduce", f"{stats['dense_bytes']:,}")
    table.add_row("compression", f"{stats['compression']:.1f} x")
    console.print(table)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    texts = prepared(read(args.data) if args.data else made_up(args.texts, args.length, args.seed), args)
    if len(texts.train) < args.batch or not texts.test:
        stop(f"too few texts: {len(texts.train)} to train and {len(texts.test)} to test, --batch {args.batch}")
    model, optimizer = build(args, texts)
    # The one line that makes this script parallel. It sees by itself which gradients are sparse.
    sync = spt.Dense() if args.sync == "dense" else spt.SparDL(density=args.density, teams=args.teams)
    handle = spt.distribute(optimizer, model, sync=sync)

    count = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"{len(texts.train):,} texts, {texts.words:,} words, {count:,} parameters, {comm.size} ranks", highlight=False
    )
    history: list[dict[str, Any]] = []
    words: list[int] = []
    for epoch in range(args.epochs):
        started = time.perf_counter()
        loss, words_of_epoch = train_epoch(model, optimizer, handle, texts, args, epoch)
        seconds = time.perf_counter() - started
        accuracy, test_loss = evaluate(model, texts.test)
        words += words_of_epoch
        history.append({"train_loss": loss, "test_accuracy": accuracy, "test_loss": test_loss, "seconds": seconds})
        console.print(
            f"epoch {epoch + 1:3} of {args.epochs}: training loss {loss:.4f}, test accuracy {accuracy:.2%}, "
            f"{seconds:.1f} s",
            highlight=False,
        )

    result = summary(args, handle, history, words)
    show(result)
    if args.json is not None and comm.rank == 0:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
