"""Gradients of which size, as numbers or by name."""

SIZES = {"vgg16": 14_728_266, "resnet20": 269_722}  # networks of the SparDL paper, with ten classes


def parse_size(text: str) -> int:
    """A number of elements, or a network's name."""
    if text in SIZES:
        return SIZES[text]
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"expected a number of elements or one of {', '.join(SIZES)}, got {text!r}")
    return int(text)
