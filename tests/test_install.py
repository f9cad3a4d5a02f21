"""Without a compiler the package installs, says so, and runs on numba."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, **options)


def test_install_without_a_compiler(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "spardl", source / "spardl", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(ROOT / "csrc", source / "csrc")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    broken = os.environ | {"CC": "no-such-compiler", "CXX": "no-such-compiler"}
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(tmp_path / "site"),
    ]
    installed = run([*pip, "-v", str(source)], env=broken)
    assert "installing without them; it will run on numba" in installed.stdout + installed.stderr

    program = (
        "import numpy as np; from spardl.kernels import load\n"
        "print(load().name, load().split(np.arange(3, dtype='i4'), np.ones(3), 2))"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "SPARDL_BACKEND": "auto"}
    used = run([sys.executable, "-c", program], env=environment, cwd=tmp_path)
    assert used.stdout.startswith("numba Split(")
    assert "installed without its compiled kernels" in used.stderr
