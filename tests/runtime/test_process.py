"""The interpreter of processes, on ranks in one thread."""

from dataclasses import dataclass

import numpy as np
import pytest

from spardl import Deadlock
from spardl.collectives.dense_ring import dense_ring
from spardl.effects import CALLED_OFF, TRAINING, Compute, Exchange, Join, Mail, Next, Now, Post
from spardl.notes import Note
from spardl.runtime.loopback import Loopback, Mischief, loopback
from spardl.runtime.process import Ended, Program

SEEDS = range(20)


@dataclass(frozen=True, slots=True)
class Numbered(Note):
    number: int


@dataclass(frozen=True, slots=True)
class Enough(Note):
    pass


def nothing():
    return
    yield


def test_mail_between_two_ranks_keeps_its_order():
    def sends():
        for number in range(10):
            yield Post(1, "hears", Numbered(number))

    def hears(heard):
        for _ in range(10):
            mail = yield Next()
            heard.append((mail.sender, mail.note.number))

    for seed in SEEDS:
        heard = []
        loopback([Program({"sends": sends()}), Program({"hears": hears(heard)})], seed=seed)
        assert heard == [(0, number) for number in range(10)]


def test_arrays_come_as_bytes_of_their_own_and_may_be_overtaken():
    overtaken = set()

    def sends():
        array = np.arange(4.0)
        yield Post(1, "hears", Numbered(0), array)
        array[:] = -1  # the sender may use it again
        yield Post(1, "hears", Numbered(1))

    def hears(seen):
        for _ in range(2):
            mail = yield Next()
            seen.append(mail.note.number)
            if mail.array is not None:
                np.testing.assert_array_equal(mail.array.view(float), np.arange(4.0))
                assert not mail.array.flags.writeable

    for seed in SEEDS:
        seen = []
        loopback([Program({"sends": sends()}), Program({"hears": hears(seen)})], seed=seed)
        overtaken.add(tuple(seen))
    assert overtaken == {(0, 1), (1, 0)}


def test_within_a_rank_anything_is_handed_over_as_it_is():
    thing = object()

    def gives():
        yield Post(0, "takes", "any note", thing)

    def takes(seen):
        seen.append((yield Next()))

    seen = []
    loopback([Program({"gives": gives(), "takes": takes(seen)})])
    assert seen == [Mail(0, "any note", thing)]


def test_waiting_for_mail_ends_in_time():
    def waits():
        began = yield Now()
        assert (yield Next(0)) is None
        assert (yield Now()) == began
        assert (yield Next(2.5)) is None
        return (yield Now()) - began

    run = Loopback([Program({"waits": waits()})])
    run.run()
    assert run.ranks[0].results == {"waits": 2.5}


def summing(me, ranks, out):
    return dense_ring(ranks, me, np.full(3, me + 1.0), out)


@pytest.mark.parametrize("seed", SEEDS)
def test_collectives_among_some_of_the_ranks(seed):
    """Two groups at once, under the same number; positions are theirs."""

    def joins(me, members):
        out = np.empty(3)
        yield Join(members, 7, summing(members.index(me), 2, out))
        return out.tolist()

    programs = [Program({"joins": joins(me, (0, 2) if me % 2 == 0 else (1, 3))}) for me in range(4)]
    run = Loopback(programs, seed=seed)
    run.run()
    assert [rank.results["joins"] for rank in run.ranks] == [[3.0] * 3] * 4


@pytest.mark.parametrize("seed", SEEDS)
def test_a_collective_is_called_off_by_mail_of_a_kind_that_says_so(seed):
    def joins(me):
        result = yield Join((0, 1), 1, summing(me, 2, np.empty(3)), (Enough,))
        assert result is CALLED_OFF
        assert (yield Next()).note == Numbered(5)  # which came before, and did not matter
        assert (yield Next()).note == Enough()

    def tells():
        yield Post(0, "joins", Numbered(5))
        yield Post(0, "joins", Enough())

    loopback([Program({"joins": joins(0)}), Program({"tells": tells()})], seed=seed)


def test_a_collective_is_not_begun_if_such_mail_has_come_before():
    def joins():
        yield Next()
        yield Compute(1.0)
        assert (yield Join((0, 1), 1, summing(0, 2, np.empty(3)), (Enough,))) is CALLED_OFF
        yield Next()

    def tells():
        yield Post(0, "joins", Numbered(5))
        yield Post(0, "joins", Enough())

    loopback([Program({"joins": joins()}), Program({"tells": tells()})])


@pytest.mark.parametrize("seed", SEEDS)
def test_services_run_until_the_processes_of_all_ranks_have_ended(seed):
    def serves():
        while True:
            mail = yield Next()
            yield Post(mail.sender, "asks", mail.note)

    def asks():
        for number in range(5):
            yield Post(0, "serves", Numbered(number))
            assert (yield Next()).note == Numbered(number)

    def trains():
        mail = yield Next()
        return mail.note

    serving = Program({}, {"serves": serves()}, trains())
    assert loopback([serving, Program({"asks": asks()}, training=trains())], seed=seed) == [Ended(), Ended()]


@pytest.mark.parametrize("seed", SEEDS)
def test_training_talks_to_processes_of_its_own_rank(seed):
    def trains(me):
        yield Compute(0.1)
        yield Post(me, "doubles", Numbered(21))
        return (yield Next()).note.number

    def doubles(me):
        mail = yield Next()
        yield Post(me, TRAINING, Numbered(2 * mail.note.number))

    programs = [Program({"doubles": doubles(me)}, training=trains(me)) for me in range(3)]
    assert loopback(programs, seed=seed) == [42] * 3


def test_training_does_not_talk_to_other_ranks():
    def trains():
        yield Post(1, "anybody", Numbered(1))

    programs = [Program({"waits": nothing()}, training=trains()), Program({"waits": nothing()})]
    with pytest.raises(ValueError, match="training on rank 0 posts to rank 1"):
        loopback(programs)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_error_in_a_process_reaches_training_on_all_ranks(seed):
    def fails():
        yield Next(1.0)
        raise OverflowError("too much")

    def waits():
        yield Next()

    def trains():
        while True:
            yield Next()

    programs = [Program({"works": fails() if me == 1 else waits()}, training=trains()) for me in range(3)]
    run = Loopback(programs, seed=seed)
    with pytest.raises(RuntimeError, match="rank 1 failed with OverflowError: too much"):
        run.run()
    assert isinstance(run.trainings[1].error, OverflowError)
    assert [run.trainings[me].error.ranks for me in (0, 2)] == [(1,), (1,)]


def test_an_error_in_a_collective_is_one_of_the_process():
    def breaks(me):
        yield Exchange(1 - me, np.zeros(1), 1 - me)
        raise ValueError("in a round")

    def joins(me):
        yield Join((0, 1), 1, breaks(me) if me == 0 else summing(me, 2, np.empty(3)))

    run = Loopback([Program({"joins": joins(me)}) for me in range(2)])
    with pytest.raises(ValueError, match="in a round"):
        run.run()
    assert "in a round" in str(run.ranks[1].error)


def test_a_deadlock_says_who_waits_for_what():
    def waits():
        yield Next()

    def joins():
        yield Join((0, 1), 3, summing(0, 2, np.empty(3)), name="the round")

    with pytest.raises(Deadlock) as caught:
        loopback([Program({"joins": joins()}), Program({"waits": waits()})])
    assert str(caught.value) == (
        "no rank can move: rank 0 waits for 1 in ring reduce round 0; "
        "joins of rank 0 waits for the round 3 among ranks 0, 1; waits of rank 1 waits for mail"
    )


def test_mail_to_a_rank_that_is_not_there():
    def sends():
        yield Post(5, "anybody", Enough())

    with pytest.raises(ValueError, match="rank 0 posts to rank 5, but there are 1 ranks"):
        loopback([Program({"sends": sends()})])


def test_mail_for_a_process_that_has_ended_is_thrown_away():
    def sends():
        yield Compute(1.0)
        yield Post(1, "ended", Enough())
        yield Post(1, "never was", Enough())

    loopback([Program({"sends": sends()}), Program({"ended": nothing()})])


def test_a_stopped_rank_goes_on_where_it_was():
    def counts(me):
        for number in range(50):
            yield Post((me + 1) % 3, "counts", Numbered(number))
            assert (yield Next()).note == Numbered(number)

    stops = 0
    for seed in SEEDS:
        mischief = Mischief(stops=20, may_stop=range(3))
        Loopback([Program({"counts": counts(me)}) for me in range(3)], seed=seed, mischief=mischief).run()
        stops += 20 - mischief.stops
    assert stops > 20
