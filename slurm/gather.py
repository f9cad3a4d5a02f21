"""One table of what a sweep's `spardl train --json` wrote: python slurm/gather.py FOLDER

Prints it, and writes it to FOLDER/table.txt and FOLDER/table.json. With --of N it does so only when all N settings have
ended, so that of many tasks that call it the last one succeeds. What failed has left a file .failed instead of .json.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from spardl.bench.table import Column, print_table

COLUMNS = [
    Column("density", "density", "g"),
    Column("teams", "teams", "d"),
    Column("ranks", "ranks", "d"),
    Column("accuracy", "accuracy", ".2%"),
    Column("loss", "loss", ".4f"),
    Column("seconds", "seconds", ".2f"),
    Column("bytes sent", "bytes_sent", ",d"),
    Column("× fewer", "fewer", ",.1f"),
    Column("remark", "remark"),
]


def read(path: Path) -> list[dict[str, Any]]:
    record = json.loads(path.read_text())
    rows = []
    for run in record["runs"].values():
        row = {key: run[key] for key in ("accuracy", "loss", "seconds", "bytes_sent", "same_bits")}
        row |= {"density": run["sync"].get("density"), "teams": run["sync"].get("teams"), "ranks": record["ranks"]}
        rows.append(row | {"fewer": run["dense_bytes"] / max(run["bytes_sent"], 1)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--of", type=int, default=0, metavar="N", help="settings there are in all")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    ended = sorted(path for path in folder.glob("density*") if path.suffix in (".json", ".failed"))
    if len(ended) < arguments.of:
        print(f"{len(ended)} of {arguments.of} settings have ended; whoever ends last gathers them in {folder}")
        return
    if not ended:
        sys.exit(f"gather.py: {folder} has no results of a sweep in it")
    rows = [row for path in ended if path.suffix == ".json" for row in read(path)]
    rows.sort(key=lambda row: (row["ranks"], row["teams"], row["density"]))
    rows += [{"remark": f"{path.stem} failed, see the logs"} for path in ended if path.suffix == ".failed"]
    (folder / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
    title = f"{folder}: accuracy on the test images, bytes of the busiest rank"
    with (folder / "table.txt").open("w") as file:
        print_table(title, COLUMNS, rows, file=file)
    print_table(title, COLUMNS, rows)


if __name__ == "__main__":
    main()
