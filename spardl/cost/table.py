"""The paper's Table 1, with formulas that are found by walking the schedules, not typed in.

Rounds and volumes are walked for some P and d, a formula of a few terms is fitted to them exactly, in fractions, and
checked on others. The unit of volume is the element: an entry, index and value, counts as two.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from spardl.cost.traffic import LEAST, MOST, Setting, transfers
from spardl.schedule import ceil_log2


class Published(NamedTuple):
    """A row as the paper prints it; ``remark``: where what is built here differs, and why."""

    name: str
    algorithm: str
    sag: str | None  # None: one team
    latency: str
    bandwidth: str
    remark: str = ""


TABLE_1 = (
    Published("Dense", "dense_rabenseifner", None, "2 log P", "2 (P−1)/P n"),
    Published("TopkA", "topk_a", None, "log P", "2 (P−1) k"),
    Published(
        "TopkDSA",
        "topk_dsa",
        None,
        "P + 2 log P",
        "4 (P−1)/P k … (P−1)/P (2k + n)",
        "the regions are gathered in log P rounds, not 2 log P",
    ),
    Published("gTopk", "gtopk", None, "2 log P", "4 log P k", "here for any P"),
    Published(
        "Ok-Topk",
        "oktopk",
        None,
        "2 (P + log P)",
        "2 (P−1)/P k … 6 (P−1)/P k",
        "the second P−1 rounds only where regions are uneven",
    ),
    Published("SparDL (no SAG)", "spardl", None, "2 ⌈log P⌉", "4 (P−1)/P k"),
    Published("SparDL (R-SAG)", "spardl", "r", "2 ⌈log P/d⌉ + log d", "2 ((2P−2d)/P + d/P log d) k"),
    Published(
        "SparDL (B-SAG)",
        "spardl",
        "b",
        "2 ⌈log P/d⌉ + log d",
        "2 (d²+P−2d)/(Pd) k … 2 (d²+2P−3d)/P k",
        "the paper's lower end leaves the reduce-scatter's 2 (P−d)/P k out",
    ),
)


class Cost(NamedTuple):
    """Rounds, and the volume as multiples of k and n, of the busiest rank."""

    rounds: int
    of_k: Fraction
    of_n: Fraction


def cost(row: Published, ranks: int, teams: int, gradients: str) -> Cost:
    """By walking the schedule, for any P and any d that divides it."""

    def volume(k: int, n: int) -> Fraction:
        setting = Setting(ranks, n, k, teams, row.sag or "auto", gradients, symbolic=True)
        return sum((Fraction(t.volume) for t in transfers(row.algorithm, setting)), Fraction(0))

    setting = Setting(ranks, 0, 0, teams, row.sag or "auto", gradients, symbolic=True)
    return Cost(len(transfers(row.algorithm, setting)), volume(1, 0), volume(0, 1))


# -- formulas ----------------------------------------------------------------------------------------------------------

Term: TypeAlias = tuple[str, Callable[[int, int], Fraction]]  # how it is written, and its value for P ranks in d teams

_LATENCY: list[Term] = [
    ("(P−1)", lambda P, d: Fraction(P - 1)),
    ("log P", lambda P, d: _log(P)),
]
_TEAM_LATENCY: list[Term] = [
    ("log(P/d)", lambda P, d: _log(P // d)),
    ("log d", lambda P, d: _log(d)),
]
_BANDWIDTH: list[Term] = [
    ("(P−1)/P", lambda P, d: Fraction(P - 1, P)),
    ("(P−1)", lambda P, d: Fraction(P - 1)),
    ("log P", lambda P, d: _log(P)),
]
_TEAM_BANDWIDTH: list[Term] = [
    ("(P−d)/P", lambda P, d: Fraction(P - d, P)),
    ("(P−d)/(Pd)", lambda P, d: Fraction(P - d, P * d)),
    ("d/P log d", lambda P, d: Fraction(d, P) * _log(d)),
    ("(d−1)/P", lambda P, d: Fraction(d - 1, P)),
    ("d(d−1)/P", lambda P, d: Fraction(d * (d - 1), P)),
]


def _log(p: int) -> Fraction:
    return Fraction(ceil_log2(p))


def latency(row: Published) -> str:
    """Rounds for powers of two, as a formula; least and most where they differ."""
    terms = _LATENCY if row.sag is None else _TEAM_LATENCY
    return _range(*(_formula(row, end, terms, lambda c: Fraction(c.rounds)) for end in (LEAST, MOST)))


def bandwidth(row: Published) -> str:
    """Volume for powers of two, as a formula; least and most where they differ."""
    terms = _BANDWIDTH if row.sag is None else _TEAM_BANDWIDTH

    def both(end: str) -> str:
        parts = _formula(row, end, terms, lambda c: c.of_k, " k"), _formula(row, end, terms, lambda c: c.of_n, " n")
        return " + ".join(part for part in parts if part)

    return _range(both(LEAST), both(MOST))


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} … {most}"


def _formula(row: Published, end: str, terms: list[Term], value: Callable[[Cost], Fraction], unit: str = "") -> str:
    """The combination of ``terms`` that is ``value`` for powers of two."""
    shapes = [(1 << i, 1 << j) for i in range(1, 7) for j in (range(i + 1) if row.sag else [0])]
    rows = [[term(P, d) for _, term in terms] for P, d in shapes]
    coefficients = _solve(rows, [value(cost(row, P, d, end)) for P, d in shapes])
    pairs = zip(coefficients, terms, strict=True)
    return " + ".join(f"{text}{unit}" if c == 1 else f"{c} {text}{unit}" for c, (text, _) in pairs if c)


def _solve(rows: Sequence[Sequence[Fraction]], totals: Sequence[Fraction]) -> list[Fraction]:
    """The one solution of more equations than unknowns, exactly."""
    unknowns = len(rows[0])
    left = [[*row, total] for row, total in zip(rows, totals, strict=True)]
    for column in range(unknowns):
        pivot = next(i for i in range(column, len(left)) if left[i][column])
        left[column], left[pivot] = left[pivot], left[column]
        head = left[column] = [x / left[column][column] for x in left[column]]
        for i, row in enumerate(left):
            if i != column and row[column]:
                left[i] = [x - row[column] * y for x, y in zip(row, head, strict=True)]
    if any(row[-1] for row in left[unknowns:]):
        raise ArithmeticError("the terms of a formula in the table do not fit what its schedule does")
    return [row[-1] for row in left[:unknowns]]
