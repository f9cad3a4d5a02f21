"""From the reports of waiting ranks to sentences: whoever is named is awaited and does not wait."""

from hypothesis import given
from hypothesis import strategies as st

from spardl.runtime.stall import ALL, Heard, Report, Silence, Stall, describe, find_culprits, find_missing, timed_out


def report(peer, step="round 0", seconds=1.0, heard=None):
    return Report(7, peer, step, seconds, False, heard or {})


@st.composite
def situations(draw):
    """A number of ranks, and the reports of those that wait, each for another one or for all."""
    ranks = draw(st.integers(2, 8))  # fewer than are listed in full
    waiting = draw(st.sets(st.integers(0, ranks - 1), min_size=1))
    others = {rank: [peer for peer in range(-1, ranks) if peer != rank] for rank in waiting}
    steps = st.sampled_from(["Spar-Reduce-Scatter round 1", "all-gather round 0"])
    return ranks, {rank: report(draw(st.sampled_from(others[rank])), draw(steps)) for rank in waiting}


@given(situations())
def test_missing_is_where_the_chains_of_waiting_end(situation):
    ranks, waits = situation
    ends = set()
    for rank in waits:
        visited = set()
        while rank in waits and rank not in visited and waits[rank].peer != ALL:
            visited.add(rank)
            rank = waits[rank].peer
        ends |= {rank} if rank not in waits else set(range(ranks)) - set(waits) if waits[rank].peer == ALL else set()
    missing = find_missing(ranks, waits)
    assert set(missing) == ends
    assert list(missing) == sorted(missing)
    for rank, waiting in missing.items():
        assert waiting == [other for other in sorted(waits) if waits[other].peer in (rank, ALL)]


@given(situations())
def test_the_text_names_them_and_tells_what_everyone_waits_for(situation):
    ranks, waits = situation
    text = describe("reduce", 7, 2.0, 30, range(ranks), [f"node{rank}" for rank in range(ranks)], waits, {})
    missing = find_missing(ranks, waits)
    for rank in range(ranks):
        assert (f"rank {rank} on host node{rank} is missing" in text) == (rank in missing)
    assert ("no rank is missing" in text) == (not missing)
    for rank, told in waits.items():
        assert (
            f"rank {rank} in {told.where}" in text
            or f"rank {rank} for {told.whom(range(ranks))} in {told.where}" in text
        )


def test_in_full_for_a_list_of_ranks():
    heard = {2: Heard(16, 3, "all-gather round 1")}, {2: Heard(17, 1, "Spar-Reduce-Scatter round 0")}
    waits = {
        0: Report(17, 3, "all-gather round 0", 1.0, False, heard[0]),
        1: Report(18, 0, "Spar-Reduce-Scatter round 0", 1.0, False, heard[1]),
        3: Report(17, 2, "Spar-Reduce-Scatter round 1", 1.5, True, heard[0]),
    }
    hosts = ["n0", "n0", "n1", "n1"]
    assert describe("SparseAllreduce.reduce", 17, 2.0, 300, [0, 10, 20, 30], hosts, waits, {}).splitlines() == [
        "spardl: SparseAllreduce.reduce, call 17, has waited for 2 s; it fails at 300 s.",
        "  rank 20 on host n1 is missing: awaited by rank 30 in Spar-Reduce-Scatter round 1 of call 17; "
        "its last message was for Spar-Reduce-Scatter round 0 of call 17, to rank 10",
        "  waiting behind: rank 0 for rank 30 in all-gather round 0 of call 17, "
        "rank 10 for rank 0 in Spar-Reduce-Scatter round 0 of call 18",
    ]


def test_the_last_that_is_known_of_a_rank():
    def told(heard, silent=None):
        return describe("x", 7, 2, 30, [0, 1], ["", ""], {0: report(1, heard=heard)}, silent or {})

    assert "rank 1 is missing" in told({})
    assert "nothing has come from it yet" in told({})
    assert "its last message was for gather of call 6, to rank 0" in told({1: Heard(6, 2, "gather")})
    assert "its last message was for round 1 of call 7, to rank 0" in told({1: Heard(7, 2, "")})
    silent = {1: Silence(report(0, "gather"), 4.0)}
    assert "4 s ago it waited for rank 0 in gather of call 7, and has not answered since" in told(
        {1: Heard(7, 2, "")}, silent
    )


def test_a_long_list_is_cut():
    text = describe("x", 7, 2, 30, range(1000), [""] * 1000, {0: report(ALL, "the sum")}, {})
    assert "rank 8 is missing" in text
    assert "rank 9 is missing" not in text
    assert "… and 991 more are missing: ranks 9, 10, 11, 12, 13, 14, 15, 16 and 983 more" in text
    text = describe("x", 7, 2, 30, range(1000), [""] * 1000, {rank: report(999) for rank in range(999)}, {})
    assert "rank 7 in round 0 of call 7 and 991 more; nothing" in text


@given(situations(), st.integers(0, 2**31), st.booleans(), st.floats(0, 1e9))
def test_reports_travel_as_bytes(situation, call, asks, seconds):
    for told in situation[1].values():
        heard = {3: Heard(call, 2, "Runde eins, ä"), 0: Heard(1, 1, "")}
        sent = Report(call, told.peer, told.step, seconds, asks, heard)
        assert Report.from_bytes(sent.to_bytes()) == sent


def test_the_error_at_the_deadline():
    stalls = {0: Stall(3, "round 1", 4.0), 1: Stall(ALL, "the sum", 4.0), 3: Stall(2, "round 0", 4.0)}
    longer = "If it takes longer on purpose, raise the limit: timeout=… or SPARDL_TIMEOUT, in seconds."
    assert timed_out("reduce", 5, [4, 5, 6, 7], [2], stalls) == (
        "reduce: rank 6 did not answer within 5 s (rank 5 waits for all ranks in the sum, "
        f"rank 7 waits for rank 6 in round 0). Is every rank making this call? {longer}"
    )
    assert "no rank is missing, but one of them did not answer" in timed_out("reduce", 5, [4, 5, 6, 7], [], stalls)


def test_who_is_silent_is_to_blame():
    assert find_culprits(4, {0: Stall(3, "", 4.0), 1: Stall(0, "", 4.0), 3: Stall(2, "", 4.0)}) == (2,)
    assert find_culprits(3, {1: Stall(0, "", 4.0)}) == (0, 2)


def test_of_the_silent_the_dead_are_to_blame_and_not_who_only_works():
    assert find_culprits(4, {0: Stall(3, "", 4.0, gone=(3,), runs=(1, 2)), 1: Stall(0, "", 4.0)}) == (3,)
    assert find_culprits(4, {0: Stall(3, "", 4.0, runs=(1, 2))}) == (3,)
    assert find_culprits(4, {0: Stall(3, "", 4.0, runs=(1, 2, 3))}) == (1, 2, 3)
    assert find_culprits(4, {0: Stall(3, "", 4.0, gone=(1,)), 1: Stall(0, "", 4.0), 2: Stall(0, "", 4.0)}) == (3,), (
        "who speaks is not dead, whatever others have seen"
    )


def test_if_all_have_come_the_last_one_is_to_blame():
    stalls = {0: Stall(1, "round 0", 0.2), 1: Stall(0, "round 0", 4.1), 2: Stall(0, "round 0", 4.0)}
    assert find_culprits(3, stalls) == (0,)
    text = timed_out("reduce", 5, range(3), [0], stalls)
    assert text.startswith("reduce: rank 0 came too late for a limit of 5 s (rank 1 waits for rank 0 in round 0")
    assert "SPARDL_TIMEOUT" in text


def test_what_is_told_of_a_stall():
    stall = Stall(ALL, "the sum", 1.5, gone=(2,), runs=(0, 1))
    assert Stall.from_bytes(stall.to_bytes()) == stall
