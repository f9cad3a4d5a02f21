"""All of RNA against chance: whoever is ready when, stopped or suspected, no gradient is lost or counted twice."""

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.rna_world import assert_law, replicas

from spardl import PeerTimeout
from spardl.protocols.rna.parts import DensePart
from spardl.protocols.rna.policies import All, Majority, PowerOfChoices, Solo
from spardl.runtime.loopback import Loopback, Mischief

policies = st.one_of(
    st.builds(PowerOfChoices, st.integers(1, 4), st.integers(0, 99)),
    st.builds(Majority),
    st.builds(Solo),
    st.builds(All),
)
counts = st.lists(st.integers(0, 6), min_size=1, max_size=12)
seeds = st.integers(0, 2**32 - 1)


def mischief(stops, false_alarms, ranks):
    return Mischief(stops=stops, false_alarms=false_alarms, may_stop=range(ranks))


@given(counts, policies, seeds, st.integers(0, 6), st.integers(0, 6), st.booleans())
@settings(max_examples=500)
def test_every_gradient_counts_once_and_all_ranks_agree(counts, policy, seed, stops, false_alarms, sparse):
    made, programs = replicas(counts, random.Random(seed), policy, sparse=sparse)
    Loopback(programs, seed=seed, mischief=mischief(stops, false_alarms, len(counts))).run()
    assert_law(made, [range(len(counts))])
    for replica, count in zip(made, counts, strict=True):
        assert sum(replica.training.metrics.staleness.values()) == count
        assert replica.training.metrics.dropped == 0


@given(counts, policies, seeds, st.integers(0, 4), st.integers(0, 4), st.integers(1, 3), st.data())
@settings(max_examples=300)
def test_groups_keep_the_law_each(counts, policy, seed, stops, false_alarms, period, data):
    """Their weights are averaged meanwhile: that shifts all ranks of a group alike, and ends when all groups do."""
    ranks = data.draw(st.permutations(range(len(counts))))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(counts) - 1)), max_size=3)))
    groups = [tuple(sorted(ranks[a:b])) for a, b in zip([0, *cuts], [*cuts, len(counts)], strict=True) if ranks[a:b]]
    made, programs = replicas(counts, random.Random(seed), policy, groups=groups, period=period)
    Loopback(programs, seed=seed, mischief=mischief(stops, false_alarms, len(counts))).run()
    assert_law(made, groups)


@given(counts, policies, seeds, st.integers(0, 4), st.integers(0, 4), st.integers(1, 4))
@settings(max_examples=300)
def test_what_is_too_old_is_dropped_and_counted(counts, policy, seed, stops, false_alarms, staleness):
    made, programs = replicas(counts, random.Random(seed), policy, summed=False, staleness=staleness)
    Loopback(programs, seed=seed, mischief=mischief(stops, false_alarms, len(counts))).run()
    for replica, count in zip(made, counts, strict=True):
        metrics = replica.training.metrics
        assert replica.applied == made[0].applied
        assert max(metrics.staleness, default=0) <= staleness
        assert sum(metrics.staleness.values()) + metrics.dropped == count


@given(counts.filter(any), policies, seeds, st.integers(0, 3), st.data())
@settings(max_examples=200)
def test_what_fails_on_one_rank_is_raised_on_all(counts, policy, seed, stops, data):
    fails = data.draw(st.sampled_from([rank for rank, count in enumerate(counts) if count]))
    _, programs = replicas(
        counts, random.Random(seed), policy, fails=(fails, data.draw(st.integers(0, counts[fails] - 1)))
    )
    run = Loopback(programs, seed=seed, mischief=mischief(stops, 0, len(counts)))
    with pytest.raises(Exception, match="in iteration"):
        run.run()
    for rank, training in enumerate(run.trainings):
        kind = ArithmeticError if rank == fails else RuntimeError
        assert isinstance(training.error, kind), (rank, training.error)
        assert rank == fails or training.error.ranks == (fails,)


class BreaksOnce(DensePart):
    """A process fails, not training."""

    def contribute(self, members, rank, contribution):
        yield from super().contribute(members, rank, contribution)
        raise ZeroDivisionError("in a round")


@pytest.mark.parametrize("seed", range(20))
def test_what_fails_in_a_process_is_raised_in_training_on_all_ranks(seed, monkeypatch):
    monkeypatch.setattr("protocols.rna_world.DensePart", BreaksOnce)
    _, programs = replicas([3] * 4, random.Random(seed), PowerOfChoices(2))
    run = Loopback(programs, seed=seed)
    with pytest.raises(Exception, match="in a round"):
        run.run()
    assert all("in a round" in str(training.error) for training in run.trainings)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("policy", [PowerOfChoices(2), All()])
def test_a_rank_that_stops_for_good_is_named(seed, policy):
    """It has nothing left to do but be waited for: by the others in the end, if not before."""
    rng = random.Random(seed)
    gone = rng.randrange(5)
    _, programs = replicas([6] * 5, rng, policy, limit=60.0)
    run = Loopback(programs, seed=seed, mischief=Mischief(for_good=[gone]))
    with contextlib.suppress(PeerTimeout):
        run.run()
    for rank, training in enumerate(run.trainings):
        if rank != gone and training.error is not None:
            assert training.error.ranks == (gone,)
            assert f"Rank {gone} gives no sign of life" in str(training.error)
    assert run.now() <= 200  # nobody has waited for much longer than the limit


@pytest.mark.parametrize("ranks", range(1, 13))
def test_all_takes_everyone_in_every_round(ranks):
    """Bulk-synchronous: as many rounds as gradients, and all contribute to each."""
    for seed in range(5):
        made, programs = replicas([4] * ranks, random.Random(seed), All(), slowness=(0, 3, 9))
        Loopback(programs, seed=seed).run()
        for replica in made:
            assert replica.training.metrics.contributors == [ranks] * 4
            assert replica.training.metrics.staleness == {0: 4}


def test_suspicion_stopping_dropping_and_shifting_do_happen(monkeypatch):
    """So that the properties above mean something."""
    counted = {"undone": 0, "shifted": 0, "dropped": 0, "fetched": 0}
    monkeypatch.setattr(DensePart, "undo", lambda self: counted.update({"undone": counted["undone"] + 1}))
    read = DensePart.read

    def counting_read(self, kind, message):
        counted["fetched"] += 1
        return read(self, kind, message)

    monkeypatch.setattr(DensePart, "read", counting_read)
    for seed in range(60):
        rng = random.Random(seed)
        made, programs = replicas([5] * 6, rng, PowerOfChoices(2), groups=[(0, 1, 2), (3, 4, 5)], period=1)
        Loopback(programs, seed=seed, mischief=mischief(6, 6, 6)).run()
        counted["shifted"] += sum(kind == "shift" for kind, *_ in made[4].applied)
        made, programs = replicas([8] * 6, rng, PowerOfChoices(2), summed=False, staleness=1)
        Loopback(programs, seed=seed).run()
        counted["dropped"] += sum(replica.training.metrics.dropped for replica in made)
    assert min(counted.values()) > 10, counted


@pytest.mark.parametrize("seed", range(5))
def test_other_groups_are_called_for_when_paces_differ(seed):
    made, programs = replicas(
        [40] * 4, random.Random(seed), Solo(), period=5, paces=[0.1, 0.1, 0.9, 0.9], regroups=True, slowness=(1,)
    )
    Loopback(programs, seed=seed).run()
    assert all(replica.regroups or replica.training.wants_regroup for replica in made)


def test_groups_that_fit_are_left_alone():
    made, programs = replicas([40] * 4, random.Random(1), Solo(), period=5, regroups=True, slowness=(1,))
    Loopback(programs, seed=1).run()
    assert not any(replica.training.wants_regroup for replica in made)


def test_rounds_are_applied_on_the_terms_of_the_lead():
    made, programs = replicas([4] * 3, random.Random(1), All())
    Loopback(programs, seed=1).run()
    assert [terms for *_, terms in made[2].applied] == [f"in iteration {number}" for number in range(4)]
