"""A collective among some ranks: peers and errors are told of by rank."""

import pytest

from spardl import NonFiniteGradient, Recv, Send
from spardl.errors import DtypeDisagreement
from spardl.runtime.among import among


def test_peers_and_errors_are_renumbered():
    def collective():
        yield Send(1, b"!")
        yield Recv(0)
        raise NonFiniteGradient("non-finite gradient on rank 1 at index 5", rank=1, index=5)

    parts = among([4, 7], collective())
    assert parts.send(None).to == 7
    assert parts.send(None).source == 4
    with pytest.raises(NonFiniteGradient, match="on rank 7 at index 5") as caught:
        parts.send(b"?")
    assert (caught.value.rank, caught.value.index) == (7, 5)


def test_types_are_those_of_ranks():
    def collective():
        yield Recv(0)
        raise DtypeDisagreement({0: "float32", 1: "float64"})

    parts = among([7, 4], collective())
    parts.send(None)
    with pytest.raises(TypeError, match="dtype: float64 on rank 4, float32 on rank 7"):
        parts.send(b"?")
