"""How B-SAG's width follows the count: Algorithm 2, within bounds."""

import pytest

from spardl.collectives.b_sag import Width

BUDGET, TEAMS = 100, 4  # h between 25 and 100


def go(width, reduces, seen, budget=BUDGET, teams=TEAMS):
    """The widths of so many reduces, each of which found ``seen(h)`` entries."""
    widths = []
    for _ in range(reduces):
        width = width.adjusted(budget, teams)
        widths.append(width)
        width = width.after(seen(width.h))
    return widths


@pytest.mark.parametrize("seen", [0, 10**9])
@pytest.mark.parametrize(("budget", "teams"), [(100, 4), (1, 3), (0, 3), (7, 7), (10**6, 2)])
def test_ten_thousand_saturated_reduces(budget, teams, seen):
    widths = go(Width.initial(200, budget, teams, 2 * teams), 10_000, lambda h: seen, budget, teams)
    low = -(-budget // teams)
    assert all(1 <= abs(width.step) <= max(1, budget - low) for width in widths)
    assert all(low <= width.h <= budget for width in widths)
    assert widths[-1].h == (low if seen else budget)


@pytest.mark.parametrize("target", [26, 40, 63, 99])
@pytest.mark.parametrize("saturated", [0, 10**9])
def test_the_width_recovers_soon_after_saturation(saturated, target):
    (*_, last) = go(Width.initial(200, BUDGET, TEAMS, 8), 1000, lambda h: saturated)
    recovered = go(last.after(saturated), 40, lambda h: BUDGET + 1 if h > target else BUDGET)
    assert all(abs(width.h - target) <= 4 for width in recovered[15:])


def test_the_step_turns_in_whole_numbers_and_never_stops():
    (width,) = go(Width(50, -5, False, BUDGET), 1, lambda h: 0)
    assert (width.h, width.step) == (52, 2)
    (width,) = go(Width(50, 1, False, BUDGET + 1), 1, lambda h: 0)
    assert (width.h, width.step) == (49, -1)
