"""``together.py PROGRAM…``: one after the other in the same processes, as starting takes longer than most of them."""

import runpy
import sys
from pathlib import Path

for name in sys.argv[1:]:
    print(f"begins {name}", flush=True)
    runpy.run_path(str(Path(__file__).parent / f"{name}.py"), run_name="__main__")
