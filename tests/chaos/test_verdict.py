"""How the campaign judges a job, on courses that are made up."""

from dataclasses import replace

import pytest
from injection import FAULTS, FINISHING, PAUSE, WORKLOADS, draw
from job import LAUNCHER, Course
from verdict import blamed, judge

INJECTION = replace(draw(seed=0, number=0), ranks=3, victim=1, fault="kill")


def course(*messages, code=1, struck=10.0, hung=()):
    """What rank 0, 1 and 2 told, each message a rank and what it said."""
    told = [{"rank": rank, "what": what, **more} for rank, what, more in messages]
    return Course(told, struck, {}, hung, 1.0, None if hung else code)


def error(rank, text, ranks=()):
    return rank, "error", {"type": "PeerTimeout", "text": text, "ranks": list(ranks)}


def done(rank, digest="same"):
    return rank, "done", {"digest": digest}


@pytest.mark.parametrize(
    ("text", "ranks", "expected"),
    [
        ("reduce: rank 1 did not answer within 4 s (rank 0 waits for rank 1 in round 0).", [], {1}),
        ("reduce: rank 1 did not answer within 4 s (rank 0 waits for rank 1; rank 3 waits for rank 0)", [1], {1}),
        ("rank 1 failed with KeyError: 'no such file'", [], {1}),
        ("rank 3 failed with PeerTimeout: rank 1 did not answer", [], {1}),
        ("rank 3 ended with PeerTimeout: no round has ended within 4 s", [], {3}),
        ("ranks 1, 2 and 3 are gone", [], {1, 2, 3}),
        ("rank 1 and rank 3 did not answer", [], {1, 3}),
        ("rank 1 failed in call 3, which succeeded on rank 0", [], {1}),
        ("no rank is missing", [], set()),
        ("not all of 4 ranks came", [], set()),
    ],
)
def test_who_is_blamed_by_an_error_of_rank_0(text, ranks, expected):
    assert blamed({"rank": 0, "text": text, "ranks": ranks}) == expected


def test_survivors_that_name_the_victim_are_right():
    verdict = judge(INJECTION, course(error(0, "rank 1 did not answer"), error(2, "", ranks=[1])))
    assert not verdict.is_bad
    assert (verdict.named, verdict.wrong, verdict.unnamed) == (2, (), ())


def test_survivors_that_name_another_or_nobody():
    verdict = judge(INJECTION, course(error(0, "rank 2 did not answer"), error(2, "who knows")))
    assert verdict.wrong == ("rank 0: PeerTimeout: rank 2 did not answer",)
    assert verdict.unnamed == ("rank 2: PeerTimeout: who knows",)


def test_processes_that_are_still_there_hang():
    verdict = judge(INJECTION, course(error(0, "rank 1 is gone"), hung=(LAUNCHER, 0, 1)))
    assert verdict.hung == ("mpiexec", "rank 0", "rank 1, the victim")


def test_success_without_the_victim_is_silent():
    assert judge(INJECTION, course(code=0)).silent == "exit code 0"
    assert "without rank 1" in judge(INJECTION, course(done(0), error(2, "rank 1"))).silent
    finished = course((1, "finishing", {}), done(0), error(2, "rank 1"))
    assert not judge(INJECTION, finished).silent  # rank 0 may have had all that it needed


def test_an_exit_code_that_is_the_launchers_is_not_silence():
    ended = replace(INJECTION, fault="os._exit(0)", cleanup=True)
    struck = (1, "struck", {})
    assert not judge(ended, course(struck, code=0)).silent
    assert judge(replace(ended, cleanup=False), course(struck, code=0)).silent
    assert judge(ended, course(struck, done(0), code=0)).silent


def test_a_fault_after_the_work_is_missed():
    finished = course((1, "finishing", {}), done(0), done(2), hung=(0, 1, 2))
    verdict = judge(replace(INJECTION, fault="stop for ever"), finished)
    assert verdict.missed
    assert not verdict.is_bad


def test_after_a_pause_all_have_to_be_done_with_the_same_result():
    injection = replace(INJECTION, fault=PAUSE)
    assert not judge(injection, course(done(0), done(1), done(2), code=0)).is_bad
    assert judge(injection, course(done(0), done(1), done(2, "other"), code=0)).silent
    assert judge(injection, course(done(0), done(1), code=0)).silent
    assert judge(injection, course(done(0), done(1), done(2), hung=(2,))).hung
    assert judge(injection, course(done(0), done(1), error(2, "rank 1 did not answer"))).needless


def test_an_error_before_the_fault_is_needless():
    assert judge(INJECTION, course(error(1, "rank 2 did not answer"), struck=None)).needless


def test_a_seed_gives_the_same_injections_again():
    assert [draw(3, number) for number in range(50)] == [draw(3, number) for number in range(50)]
    assert draw(3, 1) != draw(4, 1)
    drawn = [draw(5, number) for number in range(210)]
    assert {(i.workload, i.fault) for i in drawn} == {(w, f) for w in WORKLOADS for f in FAULTS}
    assert not any(i.between for i in drawn if i.moment == FINISHING)
