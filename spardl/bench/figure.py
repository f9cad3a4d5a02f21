"""Pictures without a screen, where matplotlib is installed."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """In inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
