"""Partial Reduce against chance: whoever is ready when, stopped or suspected, models are averaged and not lost."""

import contextlib
import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.preduce_world import N, replicas, share_of

from spardl import PeerTimeout
from spardl.protocols.preduce.settings import Settings
from spardl.protocols.preduce.weights import Constant, Dynamic
from spardl.runtime.loopback import Loopback, Mischief

seeds = st.integers(0, 2**32 - 1)
counts = st.lists(st.integers(0, 5), min_size=1, max_size=8)
sizes = st.one_of(st.integers(2, 8), st.just("auto"))
everies = st.one_of(st.none(), st.integers(1, 6))


def run(counts, seed, asked, *, stops=0, false_alarms=0, **options):
    made, programs, history = replicas(counts, random.Random(seed), asked, **options)
    mischief = Mischief(stops=stops, false_alarms=false_alarms, may_stop=range(len(counts)))
    Loopback(programs, seed=seed, mischief=mischief).run()
    return made, history


def groups_of(made):
    """By number: what each member has seen of it."""
    groups = defaultdict(dict)
    for rank, replica in enumerate(made):
        for seen in replica.groups:
            groups[seen.group.number][rank] = seen
    return groups


@given(counts, sizes, seeds, st.integers(0, 5), st.integers(0, 5), everies)
@settings(max_examples=700)
def test_constant_weights_keep_the_sum_of_all_models(counts, size, seed, stops, false_alarms, every):
    made, _ = run(counts, seed, Settings(size, global_every=every), stops=stops, false_alarms=false_alarms)
    for element in range(N):
        assert sum(replica.model[element] for replica in made) == sum(replica.moved[element] for replica in made)
    for replica, count in zip(made, counts, strict=True):
        assert len(replica.groups) == replica.training.metrics.iterations == count


@given(counts, sizes, seeds, st.integers(0, 5), st.integers(0, 5), everies, st.booleans())
@settings(max_examples=700)
def test_members_of_a_group_agree(counts, size, seed, stops, false_alarms, every, dynamic):
    """To the bit, on who they are, and on the iteration, which is the latest of theirs."""
    asked = Settings(size, Dynamic() if dynamic else Constant(), global_every=every)
    made, history = run(counts, seed, asked, stops=stops, false_alarms=false_alarms, k=N)
    groups = groups_of(made)
    assert history.graph.groups == len(groups)
    for seen in groups.values():
        (group, _, model), *others = seen.values()
        assert set(seen) == set(group.members)
        assert sum(own.group.weight for own in seen.values()) == pytest.approx(1)
        for other, _, its_model in others:
            assert its_model == model
            assert (other.members, other.iteration, other.everyone) == (group.members, group.iteration, group.everyone)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=8), st.integers(2, 8), seeds)
@settings(max_examples=300)
def test_no_group_is_smaller_than_asked_for_unless_fewer_are_left(counts, size, seed):
    """Where nobody is suspected: as many as had steps left when the group was made."""
    made, _ = run(counts, seed, Settings(size, patience=1e9))
    groups = groups_of(made)
    steps_after = defaultdict(int)
    for number in sorted(groups, reverse=True):
        group = next(iter(groups[number].values())).group
        for rank in group.members:
            steps_after[rank] += 1
        if len(group.members) < min(size, len(counts)):
            assert len(group.members) >= len([rank for rank, steps in steps_after.items() if steps])


@given(counts, seeds, st.integers(0, 4), st.integers(1, 5))
@settings(max_examples=400)
def test_differences_keep_the_sum_of_all_models(counts, seed, stops, k):
    """With constant weights and pairs: what is not sent stays in a member's own model. Exact, since halves are."""
    made, _ = run(counts[:8], seed, Settings(2, global_every=40), stops=stops, k=k)
    for element in range(N):
        assert sum(replica.model[element] for replica in made) == sum(replica.moved[element] for replica in made)


@pytest.mark.parametrize("ranks", range(1, 7))
def test_loops_until_an_iteration_end_together(ranks):
    """Every N, P and K: a slow worker makes fewer steps of its own, and nobody goes further than one group."""
    for size in range(2, ranks + 1):
        for until in (1, 2, 7):
            for seed in range(6):
                made, _ = run([50] * ranks, seed, Settings(size), until=until, slowness=(1, 2, 9), stops=seed % 3)
                for replica in made:
                    assert until <= replica.training.iteration <= until + 1
                    assert len(replica.groups) <= until


def test_a_slow_worker_makes_fewer_steps():
    rng = random.Random(3)
    made, programs, _ = replicas([50] * 3, rng, Settings(2), until=20, slowness=(1,))
    slow, slow_programs, _ = replicas([50] * 3, rng, Settings(2), until=20, slowness=(400,))
    programs[2], made[2] = slow_programs[2], slow[2]
    Loopback(programs, seed=1).run()
    assert len(made[2].groups) < min(len(made[0].groups), len(made[1].groups))
    assert made[2].training.iteration >= 20


@given(counts.filter(any), sizes, seeds, st.integers(0, 3), st.data())
@settings(max_examples=200)
def test_what_fails_on_one_rank_is_raised_on_all(counts, size, seed, stops, data):
    fails = data.draw(st.sampled_from([rank for rank, count in enumerate(counts) if count]))
    number = data.draw(st.integers(0, counts[fails] - 1))
    _, programs, _ = replicas(counts, random.Random(seed), Settings(size), fails=(fails, number))
    job = Loopback(programs, seed=seed, mischief=Mischief(stops=stops, may_stop=range(len(counts))))
    with pytest.raises(Exception, match="in iteration"):
        job.run()
    for rank, training in enumerate(job.trainings):
        assert isinstance(training.error, ArithmeticError if rank == fails else RuntimeError), (rank, training.error)
        assert rank == fails or training.error.ranks == (fails,)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_others_go_on_without_a_rank_that_stops_for_good(seed, size):
    """Those who compute are never held up by it, whatever P is; in the end it is named."""
    gone = 1 + random.Random(seed).randrange(4)
    made, programs, _ = replicas([6] * 5, random.Random(seed), Settings(size), limit=60.0, slowness=(1, 5))
    job = Loopback(programs, seed=seed, mischief=Mischief(for_good=[gone]))
    with contextlib.suppress(PeerTimeout):
        job.run()
    for rank, training in enumerate(job.trainings):
        if rank == gone:
            continue
        assert len(made[rank].groups) == 6
        if training.error is not None:
            assert training.error.ranks == (gone,)
            assert f"Rank {gone} gives no sign of life" in str(training.error)
    assert job.now() <= 200


@pytest.mark.parametrize("size", [2, 3, 4])
def test_everyone_is_averaged_now_and_then(size):
    made, _ = run([12] * 4, 5, Settings(size, global_every=3), slowness=(1,))
    groups = groups_of(made)
    kinds = [next(iter(groups[number].values())).group.everyone for number in sorted(groups)]
    assert kinds[:8] == [False, False, False, True] * 2
    assert all(len(seen) == 4 for number, seen in groups.items() if number <= 8 and kinds[number - 1])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(2, 5), seeds, st.integers(0, 3), st.booleans())
@settings(max_examples=200)
def test_an_average_is_what_the_weights_say(counts, size, seed, stops, dynamic):
    """T-PR-9: x ← Σ β x, of what members have offered."""
    made, _ = run(counts, seed, Settings(size, Dynamic() if dynamic else Constant()), stops=stops)
    for seen in groups_of(made).values():
        for element in range(N):
            mean = sum(share_of(own.group) * own.offered[element] for own in seen.values())
            assert all(own.after[element] == mean for own in seen.values())


def test_suspicion_and_stopping_do_happen():
    """So that the properties above mean something."""
    called_off = 0
    for seed in range(60):
        made, history = run([5] * 6, seed, Settings(3), stops=6, false_alarms=6)
        last = max(number for replica in made for number in [seen.group.number for seen in replica.groups])
        called_off += last - history.graph.groups
    assert called_off > 20
