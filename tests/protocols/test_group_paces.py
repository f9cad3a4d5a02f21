"""When groups are said to fit no more."""

from spardl.protocols.rna.paces import REPORTS_EVERY, Pace, Paces

ALL = [(0, 1, 2, 3)]
HALVES = [(0, 1), (2, 3)]


def look(paces, *seconds):
    """One report of every rank; what the last one said, the others being silent."""
    *before, last = [paces.report(rank, time) for rank, time in enumerate(seconds)]
    assert not any(before)
    return last


def test_two_looks_have_to_agree():
    paces = Paces(ALL)
    assert not look(paces, 1, 1, 9, 9)
    assert not look(paces, 1, 1, 1, 9)  # something else
    assert not look(paces, 1, 1, 9, 9)
    assert look(paces, 1, 1, 9, 9)


def test_groups_that_fit_stay():
    paces = Paces(HALVES)
    assert not any(look(paces, 9, 9, 1, 1) for _ in range(5))  # the order does not matter
    assert not look(paces, 1, 1, 1, 1)
    assert look(paces, 1, 1, 1, 1)


def test_nobody_is_judged_by_an_old_report():
    paces = Paces(ALL)
    for _ in range(9):
        assert not any(paces.report(rank, seconds) for rank, seconds in ((0, 1), (1, 1), (2, 9)))
    assert not paces.report(3, 9)


def test_a_hiccup_does_not_count():
    pace = Pace()
    assert pace.seconds == 0
    for number in range(2 * REPORTS_EVERY):
        pace.note(30.0 if number == REPORTS_EVERY + 2 else 0.1)
    assert pace.seconds == 0.1
    assert pace.iterations == 2 * REPORTS_EVERY
