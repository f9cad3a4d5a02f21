"""The cost model's traffic is what a run counts: every algorithm, every P up to 16, every number of teams."""

from dataclasses import replace

import numpy as np
import pytest

from spardl import kernels, schedule
from spardl.collectives.rivals import RIVALS
from spardl.collectives.spardl import SparDL
from spardl.cost.traffic import LEAST, MOST, RANDOM, WALKERS, Setting, transfers
from spardl.runtime.loopback import Loopback
from spardl.wire import Codec

PER_REGION = 24  # entries of every rank in every region
LENGTH = 16 * PER_REGION + 30


def reducers(algorithm, setting):
    chosen = kernels.load("native")
    common = {"dtype": "float32", "kernels": chosen, "codec": Codec(chosen, setting.wire)}
    if algorithm == "spardl":
        layout = schedule.Teams(setting.ranks, setting.teams)
        options = common | {"layout": layout, "sag": setting.sag}
        return [SparDL(setting.size, setting.k, rank=r, **options) for r in range(setting.ranks)]
    return [
        RIVALS[algorithm](setting.size, setting.k, rank=r, ranks=setting.ranks, **common) for r in range(setting.ranks)
    ]


def gradients(setting, rng):
    """Equally many entries in every region: at the same places on all ranks, or at different ones; or anywhere."""
    if setting.gradients == RANDOM:
        return list(rng.standard_normal((setting.ranks, setting.size)).astype(np.float32))
    grads = np.zeros((setting.ranks, setting.size), np.float32)
    for rank, grad in enumerate(grads):
        first = rank * PER_REGION if setting.gradients == MOST else 0
        chosen = grad.reshape(-1, LENGTH)[:, first : first + PER_REGION]
        chosen[:] = np.linspace(1, 2, chosen.size).reshape(chosen.shape)
    return list(grads)


def counted(algorithm, setting, reduces=1):
    """Everyone's traffic in the last reduce."""
    rng = np.random.default_rng(0)
    team = reducers(algorithm, setting)
    for _ in range(reduces):
        world = Loopback([reducer.reduce(grad) for reducer, grad in zip(team, gradients(setting, rng), strict=True)])
        world.run()
    return world.traffic


def settings(algorithm, ranks, **options):
    size, k = ranks * LENGTH, ranks * PER_REGION
    if algorithm != "spardl":
        return [Setting(ranks, size, k, **options)]
    return [
        Setting(ranks, size, k, teams, sag, **options)
        for teams in schedule.team_counts(ranks)
        for sag in ("r", "b")
        if sag == "b" or schedule.is_power_of_two(teams)
    ]


def expected(algorithm, setting, rank):
    rounds = transfers(algorithm, setting, rank)
    sent = [t.sent for t in rounds if t.sent is not None]
    received = [t.received for t in rounds if t.received is not None]
    return len(received), len(sent), *(sum(m.bytes(setting) for m in messages) for messages in (sent, received))


def exactly_known(algorithm, setting):
    """B-SAG starts narrow, and adapts; Ok-Topk has a test of its own."""
    if algorithm == "oktopk":
        return False
    return algorithm != "spardl" or setting.sag == "r" or setting.teams == 1 or setting.gradients == LEAST


@pytest.mark.parametrize("ranks", range(1, 17))
@pytest.mark.parametrize("algorithm", WALKERS)
@pytest.mark.parametrize("gradients", [LEAST, MOST])
def test_messages_and_bytes_are_those_counted(algorithm, ranks, gradients):
    for setting in settings(algorithm, ranks, gradients=gradients, wire="raw"):
        if not exactly_known(algorithm, setting):
            continue
        for rank, traffic in enumerate(counted(algorithm, setting)):
            seen = traffic.rounds, traffic.messages_sent, traffic.bytes_sent, traffic.bytes_received
            assert expected(algorithm, setting, rank) == seen, (setting, rank)


@pytest.mark.parametrize("ranks", range(1, 17))
def test_ok_topk_between_tunings(ranks):
    """With the same gradient again thresholds fit, and what is expected of random selections holds exactly."""
    (setting,) = settings("oktopk", ranks, gradients=LEAST, wire="raw")
    for rank, traffic in enumerate(counted("oktopk", setting, reduces=2)):
        seen = traffic.rounds, traffic.messages_sent, traffic.bytes_sent, traffic.bytes_received
        assert expected("oktopk", replace(setting, gradients=RANDOM), rank) == seen


@pytest.mark.parametrize("ranks", range(1, 17))
@pytest.mark.parametrize("algorithm", [name for name in WALKERS if name != "oktopk"])
def test_random_gradients_cost_about_as_much_as_expected(algorithm, ranks):
    for setting in settings(algorithm, ranks):
        everyone = counted(algorithm, setting, reduces=4)
        for rank, traffic in enumerate(everyone):
            assert expected(algorithm, setting, rank)[:2] == (traffic.rounds, traffic.messages_sent)
        sums = [
            sum(expected(algorithm, setting, rank)[2] for rank in range(ranks)),
            sum(t.bytes_sent for t in everyone),
        ]
        assert sums[0] == pytest.approx(sums[1], rel=0.1), setting


@pytest.mark.parametrize("ranks", range(2, 17))
@pytest.mark.parametrize("algorithm", WALKERS)
def test_no_rank_is_busier_than_rank_0(algorithm, ranks):
    """But for blocks that are one element longer."""
    for setting in settings(algorithm, ranks):
        bytes_of = [
            sum(max(m.bytes(setting) for m in t.messages) for t in transfers(algorithm, setting, rank))
            for rank in range(ranks)
        ]
        assert max(bytes_of) <= 1.01 * bytes_of[0]
