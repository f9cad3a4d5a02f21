"""Collectives of sizes only, against the schedules, the cost model, and the same with real gradients."""

from dataclasses import replace

import numpy as np
import pytest
from cost.profiles import GAMMA, ethernet
from cost.test_traffic import gradients, reducers, settings

from spardl import kernels
from spardl.collectives.spardl import SparDL
from spardl.cost.metered import TOLD, metered
from spardl.cost.model import predict
from spardl.cost.network import network_of
from spardl.cost.sized import sized
from spardl.cost.traffic import LEAST, MOST, RANDOM, WALKERS, Setting, transfers
from spardl.kernels.api import Corrector, FrameCoder, Kernels
from spardl.runtime.network import Network, Port, cluster
from spardl.runtime.virtual import virtual
from spardl.schedule import Teams
from spardl.wire import Codec

RANKS = [1, 2, 3, 5, 6, 8, 13]


def counted(traffic):
    return [(t.rounds, t.messages_sent, t.bytes_sent, t.bytes_received) for t in traffic]


def last_of(algorithm, setting, reduces, network=None):
    """The last of some reduces with real gradients."""
    team, rng = reducers(algorithm, setting), np.random.default_rng(0)
    network = network or cluster(setting.ranks)
    traces = [
        virtual([r.reduce(g) for r, g in zip(team, gradients(setting, rng), strict=True)], network=network)
        for _ in range(reduces)
    ]
    return traces[-1]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("algorithm", [name for name in WALKERS if name != "oktopk"])
def test_as_many_messages_as_with_real_gradients_and_about_as_many_bytes(algorithm, ranks):
    for setting in settings(algorithm, ranks):
        real, ours = last_of(algorithm, setting, 4), virtual(sized(algorithm, setting), network=cluster(ranks))
        assert [t[:2] for t in counted(ours.traffic)] == [t[:2] for t in counted(real.traffic)]
        sums = [sum(t.bytes_sent for t in trace.traffic) for trace in (ours, real)]
        assert sums[0] == pytest.approx(sums[1], rel=0.1), setting  # of a few dozen entries


@pytest.mark.parametrize("ranks", RANKS)
def test_ok_topk_between_tunings(ranks):
    """Where the thresholds fit, which they do when the same gradient comes again, the traffic is known exactly."""
    (setting,) = settings("oktopk", ranks, gradients=LEAST, wire="raw")
    ours = virtual(sized("oktopk", replace(setting, gradients=RANDOM)), network=cluster(ranks))
    assert counted(ours.traffic) == counted(last_of("oktopk", setting, 2).traffic)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("algorithm", [name for name in WALKERS if name != "oktopk"])
def test_messages_leave_in_the_order_of_the_collective(algorithm, ranks):
    """Where a message takes a second, however long it is, and any number of them leave at once."""
    network = Network(tuple(range(ranks)), (Port(),) * ranks, 10**9)
    for setting in settings(algorithm, ranks):
        real, ours = last_of(algorithm, setting, 1, network), virtual(sized(algorithm, setting), network=network)
        assert ours.rank_seconds == real.rank_seconds, setting
    if algorithm == "topk_dsa" and ranks == 8:
        assert ours.seconds == 1 + 3


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("algorithm", WALKERS)
@pytest.mark.parametrize("ends", [LEAST, MOST, RANDOM])
def test_what_is_sent_is_what_the_schedule_says(algorithm, ranks, ends):
    for setting in settings(algorithm, ranks, gradients=ends):
        trace = virtual(sized(algorithm, setting), network=cluster(ranks))
        for rank, traffic in enumerate(trace.traffic):
            rounds = transfers(algorithm, setting, rank)
            sent = [t.sent.bytes(setting) for t in rounds if t.sent is not None]
            received = [t.received.bytes(setting) for t in rounds if t.received is not None]
            assert counted([traffic]) == [(len(received), len(sent), sum(sent), sum(received))]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("algorithm", WALKERS)
def test_where_all_do_the_same_the_cost_model_says_the_same(algorithm, ranks):
    profile = ethernet(ranks)
    for setting in settings(algorithm, ranks):
        trace = virtual(sized(algorithm, setting, profile.gamma), network=network_of(profile))
        options = {"teams": setting.teams, "sag": setting.sag} if algorithm == "spardl" else {}
        said = predict(profile, algorithm, ranks=ranks, size=setting.size, k=setting.k, **options)
        assert trace.seconds == pytest.approx(said.seconds, rel=0.2), setting


@pytest.mark.parametrize("algorithm", WALKERS)
def test_kernels_alone_take_what_the_cost_model_says(algorithm):
    free = Network((0,) * 8, (Port(),), library=Port())
    setting = Setting(8, 2**20, 2**13)
    profile = ethernet(8)
    said = predict(profile, algorithm, ranks=8, size=setting.size, k=setting.k).kernel_seconds
    most = 0.2 if algorithm == "gtopk" else 1e-3  # in whose tree ranks do not all do the same
    assert virtual(sized(algorithm, setting, profile.gamma), network=free).seconds == pytest.approx(said, rel=most)
    assert virtual(sized(algorithm, setting), network=free).seconds == 0


def test_a_profile_as_a_network():
    profile = ethernet(3)
    network = network_of(profile)
    assert network.ports == (Port(50_000, pytest.approx(1e9 / 110e6)),) * 3
    assert network.alone == network.ports[0]
    assert network_of(profile, 5).ranks == 5
    assert network.allreduce(1000, 3) == round(profile.allreduce(1000) * 1e9)


def test_what_was_measured_counts_more_than_the_line():
    times = {100: [3e-6, 5e-6, 90e-6], 200: [4e-6], 1200: [14e-6]}
    points = [("exchange", size, seconds) for size, measured in times.items() for seconds in measured]
    network = network_of(replace(ethernet(2), points=[*points, ("ping", 8, 1e-6), ("ping", 16, 2e-6)]))
    port = network.ports[0]
    assert [port.busy(size) for size in (0, 100, 150, 200, 700, 1200, 2200)] == [
        5000, 5000, 5000, 5000, 9500, 14_000, 23_000
    ]  # fmt: skip
    assert [network.alone.busy(size) for size in (8, 12, 24)] == [1000, 1500, 3000]


# -- kernels that tell -------------------------------------------------------------------------------------------------


def test_every_kernel_tells():
    names = [
        name
        for protocol in (Kernels, FrameCoder, Corrector)
        for name, member in vars(protocol).items()
        if callable(member) and name[0] != "_"
    ]
    assert sorted(names) == sorted(TOLD)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize(("ranks", "teams"), [(4, 1), (6, 2), (5, 5)])
def test_real_gradients_take_about_as_long_as_sizes(backend, ranks, teams):
    """And give the same bits as kernels that tell nobody."""
    size, k = 60_000, 3000
    telling, meter = metered(kernels.load(backend), GAMMA)
    plain = kernels.load(backend)

    def team(chosen):
        common = {"layout": Teams(ranks, teams), "dtype": "float32", "kernels": chosen, "codec": Codec(chosen)}
        return [SparDL(size, k, rank=rank, **common) for rank in range(ranks)]

    ours, theirs = team(telling), team(plain)
    network = network_of(ethernet(ranks))
    rng = np.random.default_rng(0)
    for _ in range(3):
        grads = rng.standard_normal((ranks, size)).astype(np.float32)
        trace = virtual([r.reduce(g) for r, g in zip(ours, grads, strict=True)], network=network, meter=meter)
        other = virtual([r.reduce(g) for r, g in zip(theirs, grads, strict=True)], network=network)
        for mine, same in zip(trace.results, other.results, strict=True):
            assert mine.values.tobytes() == same.values.tobytes()
    sizes = virtual(sized("spardl", Setting(ranks, size, k, teams), GAMMA), network=network)
    assert other.seconds < trace.seconds
    assert trace.seconds == pytest.approx(sizes.seconds, rel=0.25)
