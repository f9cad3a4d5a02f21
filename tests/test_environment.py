"""All SPARDL_… variables are in one registry: nothing reads around it, and the README tells of all."""

import ast
import re
from pathlib import Path

import pytest

from spardl import environment
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
