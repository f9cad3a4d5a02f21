"""What a judge says of one item."""

from collections.abc import Iterable
from typing import NamedTuple

OK, ADVICE, WARNING, ERROR = "ok", "advice", "warning", "error"


class Verdict(NamedTuple):
    """An ``error`` means: do not train like this. A ``warning``: it will work, but slowly or not for long."""

    item: str
    level: str
    what: str
    todo: str = ""


def is_fit(verdicts: Iterable[Verdict]) -> bool:
    """Whether to train."""
    return all(verdict.level != ERROR for verdict in verdicts)
