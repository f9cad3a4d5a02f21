"""Does sparse Partial Reduce pay? Accuracy and bytes of the digits job against dense Partial Reduce.

    mpiexec -n 6 python benchmarks/preduce.py --json preduce.json

Every rank trains on its own part of the images. "even": all parts are alike. "by class": parts are sorted by label, so
that a rank sees two or three of the ten classes, and what it learns of the others comes from averaging.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import arguments
import torch
from mpi4py import MPI
from torch import nn

import spardl.torch as spt
from spardl import kernels
from spardl.bench import record
from spardl.bench.table import Column, Row, print_table
from spardl.cli.digits import load_digits, network

COLUMNS = (
    Column("density", "density", ".2f"),
    Column("average of all every", "global_every", "d"),
    Column("accuracy, even", "even", ".1%"),
    Column("accuracy, by class", "by_class", ".1%"),
    Column("MB sent by rank 0", "megabytes", ".0f"),
)
DATA = {"even": False, "by_class": True}
comm = MPI.COMM_WORLD


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--group", type=int, default=max(2, comm.size // 2), help="P (default: half of the ranks)")
    flags.add_argument("--steps", type=int, default=300, help="of every rank (default: %(default)s)")
    flags.add_argument("--density", nargs="+", type=float, default=[0.1, 0.01], help="default: 0.1 0.01")
    flags.add_argument("--every", nargs="+", type=int, default=[10, 50, 200], help="groups (default: 10 50 200)")
    flags.add_argument("--json", type=Path, metavar="PATH", help="also write what was measured to this file")
    return flags.parse_args()


def compare(args: argparse.Namespace) -> Iterator[Row]:
    yield measure(args, spt.Dense(), None)
    for density in args.density:
        for every in args.every:
            yield measure(args, spt.SparDL(density=density), every)


def measure(args: argparse.Namespace, reduce: spt.SparDL | spt.Dense, every: int | None) -> Row:
    sync = spt.PartialReduce(args.group, "constant", global_every=every, reduce=reduce)
    density = reduce.density_at(0) if isinstance(reduce, spt.SparDL) else 1.0
    row: Row = {"density": density, "global_every": every}
    for name, by_class in DATA.items():
        row[name], row["megabytes"] = train(sync, args.steps, by_class)
    return row


def train(sync: spt.PartialReduce, steps: int, by_class: bool) -> tuple[float, float]:
    """Accuracy on the test images, and megabytes."""
    inputs, targets, test_inputs, test_targets = load_digits()
    torch.manual_seed(0)
    order = torch.argsort(targets, stable=True) if by_class else torch.randperm(len(targets))
    mine = torch.tensor_split(order, comm.size)[comm.rank]
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    draws = torch.Generator().manual_seed(comm.rank)
    with spt.distribute(optimizer, model, sync=sync, comm=comm) as handle:
        for _ in range(steps):
            batch = mine[torch.randint(len(mine), (16,), generator=draws)]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        right = model(test_inputs).argmax(1) == test_targets
    return float(right.float().mean()), handle.stats.bytes_sent / 1e6


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)  # ranks share the cores
    rows = []
    for row in compare(args):
        rows.append(row)
        if comm.rank == 0:
            print(f"{len(rows)} of {1 + len(args.density) * len(args.every)}", flush=True)
    if comm.rank == 0:
        print_table(f"Partial Reduce on {comm.size} ranks, P = {args.group}, {args.steps} steps", COLUMNS, rows)
        arguments.write_json(args, record.machine(kernels.load().name), rows, f"mpiexec -n {comm.size}")


if __name__ == "__main__":
    main()
