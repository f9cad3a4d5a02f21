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


def trouble(path: Path) -> str:
    """Why no picture can be drawn to ``path``, as far as that is known before there is one; makes its folder."""
    try:
        formats = new_figure(1, 1).canvas.get_supported_filetypes()
        path.parent.mkdir(parents=True, exist_ok=True)
    except (ImportError, OSError) as error:
        return f"{path} cannot be drawn: {error}"
    if path.suffix[1:].lower() not in ("", *formats):
        return f"{path} cannot be drawn: expected a name that ends in one of {', '.join(sorted(formats))}"
    return ""


def save(figure: "Figure", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, format=path.suffix[1:] or "png")  # else matplotlib may choose another name
