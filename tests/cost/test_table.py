"""Table 1 of the paper, against what the schedules do."""

from fractions import Fraction

import pytest

from spardl.cost.table import TABLE_1, Cost, bandwidth, cost, latency
from spardl.cost.traffic import LEAST, MOST
from spardl.schedule import ceil_log2 as log
from spardl.schedule import is_power_of_two, team_counts

ROWS = {row.name: row for row in TABLE_1}
POWERS = [2, 4, 8, 16, 32, 64]


def share(P, d=1):
    return Fraction(P - d, P)


# As printed: rounds, and the multiples of k and n at both ends.
PAPER = {
    "Dense": lambda P, d: [Cost(2 * log(P), 0, 2 * share(P))] * 2,
    "TopkA": lambda P, d: [Cost(log(P), 2 * (P - 1), 0)] * 2,
    "TopkDSA": lambda P, d: [Cost(P + 2 * log(P), 4 * share(P), 0), Cost(P + 2 * log(P), 2 * share(P), share(P))],
    "gTopk": lambda P, d: [Cost(2 * log(P), 4 * log(P), 0)] * 2,
    "Ok-Topk": lambda P, d: [Cost(2 * (P + log(P)), end * share(P), 0) for end in (2, 6)],
    "SparDL (no SAG)": lambda P, d: [Cost(2 * log(P), 4 * share(P), 0)] * 2,
    "SparDL (R-SAG)": lambda P, d: (
        [Cost(2 * log(P // d) + log(d), 2 * (Fraction(2 * P - 2 * d, P) + Fraction(d, P) * log(d)), 0)] * 2
    ),
    "SparDL (B-SAG)": lambda P, d: [
        Cost(2 * log(P // d) + log(d), 2 * Fraction(d * d + P - 2 * d, P * d), 0),
        Cost(2 * log(P // d) + log(d), 2 * Fraction(d * d + 2 * P - 3 * d, P), 0),
    ],
}


def shapes(row, ranks):
    return [(P, d) for P in ranks for d in (team_counts(P)[1:] if row.sag else [1])]


@pytest.mark.parametrize("name", ["Dense", "TopkA", "gTopk", "SparDL (no SAG)", "SparDL (R-SAG)"])
def test_equals_the_paper(name):
    row = ROWS[name]
    for P, d in shapes(row, POWERS):
        assert [cost(row, P, d, end) for end in (LEAST, MOST)] == PAPER[name](P, d)


@pytest.mark.parametrize("name", ["TopkDSA", "Ok-Topk"])
def test_rivals_send_what_the_paper_says_in_fewer_rounds(name):
    for P in POWERS:
        ours, theirs = [cost(ROWS[name], P, 1, end) for end in (LEAST, MOST)], PAPER[name](P, 1)
        assert [end[1:] for end in ours] == [end[1:] for end in theirs]
        assert all(mine.rounds < paper.rounds for mine, paper in zip(ours, theirs, strict=True))


def test_b_sag_equals_the_paper_but_for_what_its_lower_end_forgets():
    row = ROWS["SparDL (B-SAG)"]
    for P, d in shapes(row, POWERS):
        least, most = PAPER[row.name](P, d)
        assert cost(row, P, d, MOST) == most
        assert cost(row, P, d, LEAST) == least._replace(of_k=least.of_k + 2 * share(P, d))


@pytest.mark.parametrize("P", [p for p in range(3, 17) if not is_power_of_two(p)])
def test_spardl_needs_no_power_of_two(P):
    assert cost(ROWS["SparDL (no SAG)"], P, 1, MOST) == PAPER["SparDL (no SAG)"](P, 1)[0]


def test_formulas_are_found_from_the_schedules():
    assert {name: latency(row) for name, row in ROWS.items()} == {
        "Dense": "2 log P",
        "TopkA": "log P",
        "TopkDSA": "(P−1) + log P",
        "gTopk": "2 log P",
        "Ok-Topk": "(P−1) + 2 log P … 2 (P−1) + 2 log P",
        "SparDL (no SAG)": "2 log P",
        "SparDL (R-SAG)": "2 log(P/d) + log d",
        "SparDL (B-SAG)": "2 log(P/d) + log d",
    }
    assert {name: bandwidth(row) for name, row in ROWS.items()} == {
        "Dense": "2 (P−1)/P n",
        "TopkA": "2 (P−1) k",
        "TopkDSA": "4 (P−1)/P k … 2 (P−1)/P k + (P−1)/P n",
        "gTopk": "4 log P k",
        "Ok-Topk": "2 (P−1)/P k … 6 (P−1)/P k",
        "SparDL (no SAG)": "4 (P−1)/P k",
        "SparDL (R-SAG)": "4 (P−d)/P k + 2 d/P log d k",
        "SparDL (B-SAG)": "2 (P−d)/P k + 2 (P−d)/(Pd) k + 2 (d−1)/P k … 4 (P−d)/P k + 2 d(d−1)/P k",
    }
