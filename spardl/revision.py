"""Which spardl this is. Ranks that run different code may understand each other, and compute different things."""

import hashlib
from functools import cache
from pathlib import Path

VERSION = "0.1.0"
_ROOT = Path(__file__).parent


@cache
def source_digest() -> str:
    """Of all Python files of the installed package; the same on all hosts that have the same ones."""
    return _digest(sorted(_ROOT.rglob("*.py")))


@cache
def extension_digest() -> str:
    """Of the compiled kernels, which may differ where hosts have different compilers; empty if there are none."""
    return _digest(sorted(_ROOT.rglob("*.so")))


def _digest(files: list[Path]) -> str:
    if not files:
        return ""
    digest = hashlib.blake2b(digest_size=6)
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(_ROOT).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def describe() -> str:
    """E.g. ``0.1.0 with code 5f0c2a9be41d``: equal texts, equal code."""
    return f"{VERSION} with code {source_digest()}"
