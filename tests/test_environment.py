"""All SPARDL_… variables are in one registry: nothing reads around it, and the README tells of all."""

import ast
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from mpi4py import MPI

import spardl
import spardl.torch as spt
from spardl import environment
from spardl.cli import main
from spardl.cost.measure import measure
from spardl.runtime.mpi import default_timeout

ROOT = Path(__file__).parents[1]
NAMES = {variable.name for variable in environment.VARIABLES}


def named_in_python(source):
    """Variables that a module names in its code; docstrings and comments may name them as they like."""
    strings = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text for text in strings if isinstance(text, str) and re.fullmatch(r"SPARDL_\w+", text)}


def test_no_module_reads_around_the_registry():
    modules = {path: named_in_python(path.read_text()) for path in (ROOT / "spardl").rglob("*.py")}
    assert modules.pop(ROOT / "spardl" / "environment.py") == NAMES  # also: every one of them is in VARIABLES
    assert {path: names for path, names in modules.items() if names} == {}


def test_what_the_kernels_read_is_registered():
    sources = "".join(path.read_text() for path in (ROOT / "csrc").iterdir())
    read = set(re.findall(r'getenv\("(SPARDL_\w+)"\)', sources))
    assert read == {"SPARDL_PLACES", "SPARDL_SIMD"}
    assert read <= NAMES


def test_the_readme_tells_of_all():
    assert set(re.findall(r"^\| `(SPARDL_\w+)`", (ROOT / "README.md").read_text(), re.MULTILINE)) == NAMES


def test_empty_is_unset_and_a_wrong_number_is_named(monkeypatch):
    monkeypatch.setenv("SPARDL_TIMEOUT", "")
    assert default_timeout() == 300
    monkeypatch.setenv("SPARDL_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="SPARDL_TIMEOUT: expected a number, got 'soon'"):
        default_timeout()


@pytest.mark.parametrize("wrong", ["nan", "0", "-5"])
def test_a_time_limit_that_is_none(monkeypatch, wrong):
    expected = rf": expected a number of seconds > 0 to wait for another rank, got {wrong}$"
    monkeypatch.setenv("SPARDL_TIMEOUT", "7")
    vector = spardl.SparseVector([0], [1.0], 3)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    calls = {
        "SparseAllreduce": lambda limit: spardl.SparseAllreduce(MPI.COMM_SELF, 10, k=1, timeout=limit),
        "allgather": lambda limit: spardl.allgather(MPI.COMM_SELF, vector, timeout=limit),
        "run": lambda limit: spardl.run(MPI.COMM_SELF, iter(()), timeout=limit),
        "measure": lambda limit: measure(MPI.COMM_SELF, timeout=limit),
        "distribute": lambda limit: spt.distribute(
            optimizer, model, sync=spt.Dense(), comm=MPI.COMM_SELF, timeout=limit
        ),
        "ddp_hook": lambda limit: spt.ddp_hook(spt.Dense(), MPI.COMM_SELF, timeout=limit),
        "StopSignals": lambda limit: spt.StopSignals(MPI.COMM_SELF, timeout=limit),
    }
    for call in calls.values():
        with pytest.raises(ValueError, match=f"^timeout{expected}"):
            call(float(wrong))
    monkeypatch.setenv("SPARDL_TIMEOUT", wrong)
    for call in calls.values():
        with pytest.raises(ValueError, match=f"^SPARDL_TIMEOUT{expected}"):
            call(None)
    refused = CliRunner().invoke(main, ["train"])
    assert refused.exit_code == 2
    assert f"SPARDL_TIMEOUT{expected[:-1]}" in refused.output
