"""What a Partial Reduce is asked to be."""

from dataclasses import dataclass

from spardl.protocols.preduce.weights import Constant, Dynamic

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Settings:
    """``group``: P, or ``"auto"``. ``window``: how many groups the sync graph is made of; None for the default.

    ``global_every``: after so many groups one has everyone. ``patience``: seconds to wait for a rank before it is asked
    for a sign of life, and then for that. ``filtered``: False leaves groups to chance, as a baseline.
    """

    group: int | str = 4
    weights: Constant | Dynamic = Constant()  # noqa: RUF009
    window: int | None = None
    global_every: int | None = None
    patience: float = 1.0
    filtered: bool = True
