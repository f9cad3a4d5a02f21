"""The loopback runtime: deadlocks named, buffers copied, errors raised."""

import numpy as np
import pytest

from spardl import Allreduce, Deadlock, Exchange, Flush, Recv, Send, loopback
from spardl.runtime.loopback import Loopback


def test_exchange_send_and_recv():
    def shift(rank):
        arrived = yield Exchange((rank + 1) % 3, np.array([rank]), (rank - 1) % 3)
        yield Send(rank, [arrived[:3], arrived[3:]])
        yield Flush()
        back = yield Recv(rank)
        return int(back.view(int)[0])

    run = Loopback([shift(rank) for rank in range(3)])
    assert run.run() == [2, 0, 1]
    assert [(t.rounds, t.messages_sent, t.bytes_sent, t.bytes_received) for t in run.traffic] == [(2, 2, 16, 16)] * 3


def test_allreduce_waits_for_all():
    def adds(rank):
        out = np.empty(2)
        yield Allreduce(np.array([rank, 1.0]), out)
        return out.tolist()

    def leaves():
        return
        yield

    assert loopback([adds(rank) for rank in range(3)]) == [[3.0, 3.0]] * 3
    with pytest.raises(Deadlock, match="rank 0 waits for all in round 0"):
        loopback([adds(0), leaves()])


def test_deadlock_names_who_waits_for_whom():
    def waits(source, step=""):
        yield Recv(source, step)

    with pytest.raises(
        Deadlock, match="no rank can move: rank 0 waits for 1 in round 0; rank 1 waits for 0 in stage B"
    ):
        loopback([waits(1), waits(0, "stage B")])


def test_a_sender_may_use_its_buffer_again():
    def sender():
        buffer = np.zeros(1)
        for value in (1.0, 2.0):
            buffer[0] = value
            yield Send(1, buffer)

    def receiver():
        first = yield Recv(0)
        second = yield Recv(0)
        return float(first.view(float)[0]), float(second.view(float)[0])

    assert loopback([sender(), receiver()])[1] == (1.0, 2.0)


def test_what_arrives_cannot_be_written():
    def receiver():
        arrived = yield Exchange(0, b"abc", 0)
        arrived[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        loopback([receiver()])


def test_an_error_on_one_rank_closes_the_others():
    closed = []

    def fails():
        raise RuntimeError("mine")
        yield

    def waits():
        try:
            yield Recv(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="mine"):
        loopback([waits(), fails()])
    assert closed == [True]


def test_unknown_receiver():
    def lost():
        yield Send(5, b"")

    with pytest.raises(ValueError, match="sends to rank 5, but there are 1 ranks"):
        loopback([lost()])
