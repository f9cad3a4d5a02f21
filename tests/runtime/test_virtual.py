"""Virtual time: what is computed is what loopback computes, and how long it takes can be worked out by hand."""

import json
import random
from dataclasses import dataclass

import numpy as np
import pytest
from protocols.rna_world import N, replicas

import spardl
from spardl import Allreduce, Deadlock, Exchange, Flush, Recv, Send, kernels, schedule
from spardl.collectives.spardl import SparDL
from spardl.effects import FRONT_BYTES, Compute, Join, Next, Now, Post, Size, Work
from spardl.notes import Note
from spardl.protocols.rna.policies import All, PowerOfChoices
from spardl.runtime.meter import Meter
from spardl.runtime.network import Network, Port, cluster
from spardl.runtime.process import Program
from spardl.runtime.virtual import Virtual, virtual
from spardl.wire import Codec


def second_per_byte(ranks, latency=0.0):
    """Envelopes are paid for in advance."""
    return Network(tuple(range(ranks)), (Port(-FRONT_BYTES * 10**9, 1e9),) * ranks, round(latency * 1e9))


@dataclass(frozen=True, slots=True)
class Ball(Note):
    """Anything that goes from rank to rank."""


# -- collectives -------------------------------------------------------------------------------------------------------


def test_rounds_take_latency_and_bytes():
    def shift(rank):
        arrived = yield Exchange((rank + 1) % 3, np.full(5, rank, np.uint8), (rank - 1) % 3)
        arrived = yield Exchange((rank + 1) % 3, arrived, (rank - 1) % 3)
        return arrived.tolist()

    trace = virtual([shift(rank) for rank in range(3)], network=second_per_byte(3, latency=2))
    assert trace.results == [[1] * 5, [2] * 5, [0] * 5]
    assert trace.seconds == 2 * (2 + 5)
    assert trace.rank_seconds == [14.0] * 3
    assert [(t.rounds, t.messages_sent, t.bytes_sent, t.bytes_received) for t in trace.traffic] == [(2, 2, 10, 10)] * 3


def test_incast_and_fan_out():
    """Three ranks send to rank 0, which answers them one after the other."""

    def root():
        for source in (1, 2, 3):
            yield Recv(source)
        for to in (1, 2, 3):
            yield Send(to, Size(2))
        yield Flush()

    def leaf():
        yield Send(0, Size(4))
        arrived = yield Recv(0)
        return arrived

    trace = virtual([root(), leaf(), leaf(), leaf()], network=second_per_byte(4, latency=1))
    assert trace.results == [None, Size(2), Size(2), Size(2)]
    assert trace.rank_seconds == [1 + 12 + 1 + 6, 1 + 12 + 1 + 2, 1 + 12 + 1 + 4, 1 + 12 + 1 + 6]


def test_messages_in_turn_are_each_alone():
    def rank(me):
        for _ in range(3):
            if me == 0:
                yield Send(1, Size(0))
                yield Recv(1)
            else:
                yield Recv(0)
                yield Send(0, Size(0))

    network = Network((0, 1), (Port(10 * 10**9),) * 2, alone=Port(10**9))
    assert virtual([rank(0), rank(1)], network=network).seconds == 6


def test_a_sender_goes_on_at_once_and_flush_waits():
    def sends(flush):
        yield Send(1, Size(5))
        if flush:
            yield Flush()

    def receives():
        yield Recv(0)

    ends = [virtual([sends(flush), receives()], network=second_per_byte(2)).rank_seconds for flush in (False, True)]
    assert ends == [[0.0, 5.0], [5.0, 5.0]]


def test_work_takes_time_while_messages_travel():
    def rank(me):
        yield Send(1 - me, b"12345")
        yield Work(3)
        yield Recv(1 - me)
        yield Work(4)

    assert virtual([rank(0), rank(1)], network=second_per_byte(2)).seconds == 5 + 4
    assert spardl.loopback([rank(0), rank(1)]) == [None, None]


def test_a_meter_takes_what_kernels_tell():
    meter = Meter(per_call=1)

    def rank(me):
        meter.add(2)
        yield Exchange(1 - me, Size(5), 1 - me)
        meter.add(4)

    assert virtual([rank(0), rank(1)], network=second_per_byte(2), meter=meter).seconds == 1 + 2 + 5 + 4


def test_allreduce_takes_what_the_network_says():
    def rank(me):
        out = np.empty(2)
        yield Work(me)
        yield Allreduce(np.array([me, 1.0]), out)
        return out.tolist()

    network = Network((0, 1, 2), (Port(),) * 3, library=Port(10**9, 1e9))
    trace = virtual([rank(me) for me in range(3)], network=network)
    assert trace.results == [[3.0, 3.0]] * 3
    assert trace.seconds == 2 + 1 + 16


def test_deadlock_names_who_waits_for_whom():
    def waits(source, step=""):
        yield Recv(source, step)

    with pytest.raises(Deadlock, match="rank 0 waits for 1 in round 0; rank 1 waits for 0 in stage B"):
        virtual([waits(1), waits(0, "stage B")], network=cluster(2))


def test_an_error_on_one_rank_closes_the_others():
    closed = []

    def fails():
        yield Work(1)
        raise RuntimeError("mine")

    def waits():
        try:
            yield Recv(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="mine"):
        virtual([waits(), fails()], network=cluster(2))
    assert closed == [True]


def test_a_sender_may_use_its_buffer_again_and_what_arrives_cannot_be_written():
    def sender():
        buffer = np.zeros(1)
        for value in (1.0, 2.0):
            buffer[0] = value
            yield Send(1, buffer)

    def receiver():
        first = yield Recv(0)
        second = yield Recv(0)
        with pytest.raises(ValueError, match="read-only"):
            first[0] = 1
        return float(first.view(float)[0]), float(second.view(float)[0])

    assert virtual([sender(), receiver()], network=cluster(2)).results[1] == (1.0, 2.0)


def test_a_network_of_other_ranks():
    with pytest.raises(ValueError, match="expected a network of 0 ranks, got one of 2"):
        virtual([], network=cluster(2))


@pytest.mark.parametrize(("ranks", "teams"), [(1, 1), (5, 1), (6, 2), (8, 4)])
def test_spardl_gives_the_bits_that_loopback_gives(ranks, teams):
    chosen = kernels.load("numpy")
    layout = schedule.Teams(ranks, teams)

    def team():
        common = {"layout": layout, "dtype": "float32", "kernels": chosen, "codec": Codec(chosen)}
        return [SparDL(500, 40, rank=rank, **common) for rank in range(ranks)]

    ours, theirs = team(), team()
    rng = np.random.default_rng(0)
    for _ in range(3):
        grads = rng.standard_normal((ranks, 500)).astype(np.float32)
        expected = spardl.loopback([r.reduce(grad) for r, grad in zip(ours, grads, strict=True)])
        trace = virtual([r.reduce(grad) for r, grad in zip(theirs, grads, strict=True)], network=cluster(ranks))
        for got, want in zip(trace.results, expected, strict=True):
            np.testing.assert_array_equal(got.indices, want.indices)
            assert got.values.tobytes() == want.values.tobytes()
        for one, other in zip(ours, theirs, strict=True):
            assert one.residual.tobytes() == other.residual.tobytes()


# -- processes ---------------------------------------------------------------------------------------------------------


def alone(process):
    return Program({"a": process})


def test_compute_mail_and_the_clock():
    seen = []

    def first():
        yield Compute(2)
        yield Post(1, "a", Ball(), Size(3))

    def second():
        mail = yield Next()
        seen.append((mail.sender, mail.array, (yield Now())))

    nbytes = len(b'["a","Ball"]') + 3
    trace = virtual([alone(first()), alone(second())], network=second_per_byte(2, latency=1))
    assert seen == [(0, Size(3), 2 + 1 + nbytes)]
    assert trace.traffic[0].bytes_sent == trace.traffic[1].bytes_received == nbytes


def test_alarms_ring_in_time_and_those_called_off_do_not_prolong_anything():
    rung = []

    def waits():
        rung.append(((yield Next(5)), (yield Now())))
        mail = yield Next(1000)
        rung.append((mail.note, (yield Now())))

    def posts():
        yield Compute(7)
        yield Post(0, "a", Ball())

    trace = virtual([alone(waits()), alone(posts())], network=cluster(2, "8gbit", "0us"))
    assert rung[0] == (None, 5.0)
    assert rung[1][1] == pytest.approx(7, abs=1e-6)
    assert trace.seconds == rung[1][1]


def test_alarms_that_were_called_off_do_not_pile_up():
    longest = []

    def plays(me, run):
        for _ in range(2000):
            if me == 0:
                yield Post(1, "a", Ball())
            mail = yield Next(1e6)
            assert mail is not None
            if me == 1:
                yield Post(0, "a", Ball())
            longest.append(len(run[0]._queue))

    run = []
    run.append(Virtual([alone(plays(0, run)), alone(plays(1, run))], network=cluster(2)))
    assert run[0].trace().seconds < 1
    assert max(longest) < 200


def test_a_process_that_waits_for_ever_is_named():
    def waits():
        yield Next()

    def joins():
        yield Join((0, 1), 7, (Recv(0) for _ in range(1)), (), "a sum")

    with pytest.raises(Deadlock, match=r"a of rank 0 waits for mail.*a of rank 1 waits for a sum 7 among ranks 0, 1"):
        virtual([alone(waits()), alone(joins())], network=cluster(2))


def rna(seed, ranks=9, count=5, policy=None, record=False):
    made, programs = replicas(
        [count] * ranks, random.Random(seed), policy or PowerOfChoices(2), sparse=True, summed=True
    )
    return made, virtual(programs, network=cluster(ranks, "10mbit", "1ms"), record=record)


@pytest.mark.parametrize("policy", [PowerOfChoices(2), All()])
def test_rna_obeys_the_law(policy):
    made, trace = rna(3, policy=policy)
    deposited = sum(replica.deposited for replica in made)
    left = sum(replica.part.reducer.residual for replica in made)
    np.testing.assert_array_equal(deposited, made[0].total + left)
    assert np.any(deposited)
    assert len({tuple(replica.applied) for replica in made}) == 1
    assert deposited.shape == (N,)
    assert trace.results == made


# -- equal to the bit --------------------------------------------------------------------------------------------------


def test_two_runs_are_equal_to_the_bit(tmp_path):
    files = []
    for name in ("first", "second"):
        made, trace = rna(5, record=True)
        trace.to_timeline(tmp_path / name)
        files.append(
            (
                (tmp_path / name).read_bytes(),
                trace.rank_seconds,
                trace.events,
                [replica.applied for replica in made],
                trace.traffic,
            )
        )
    assert files[0] == files[1]
    assert len(files[0][0]) > 10_000


def test_a_timeline_for_perfetto(tmp_path):
    def rank(me):
        yield Send(1 - me, Size(5), "round 0")
        yield Work(3)
        yield Recv(1 - me, "round 0")

    trace = virtual([rank(0), rank(1)], network=second_per_byte(2, latency=1), record=True)
    trace.to_timeline(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = {(e["pid"], e["name"]): (e["ts"] / 1e6, e["dur"] / 1e6) for e in events if e["ph"] == "X" and e["dur"]}
    for me in (0, 1):
        assert spans[me, "collective"] == (0, 6)
        assert spans[me, "compute"] == (0, 3)
        assert spans[me, f"wait for rank {1 - me}"] == (3, 3)
        assert spans[me, f"to rank {1 - me}"] == (0, 5)
        assert spans[me, f"from rank {1 - me}"] == (1, 5)
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "rank 0 on host 0",
        "rank 1 on host 1",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_what_was_not_recorded_cannot_be_shown(tmp_path):
    with pytest.raises(ValueError, match="record=True"):
        virtual([], network=Network((), ())).to_timeline(tmp_path / "trace.json")


def test_no_mpi_is_needed():
    assert spardl.virtual is virtual
