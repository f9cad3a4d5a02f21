"""An error told to another rank arrives as the same error."""

import pytest

from spardl import NonFiniteGradient, PeerError
from spardl.errors import from_notice, to_notice


def test_known_errors_keep_their_type_and_name_the_rank():
    told = from_notice(to_notice(TypeError("expected float32")), sender=3)
    assert type(told) is TypeError
    assert str(told) == "rank 3: expected float32"
    told = from_notice(to_notice(NonFiniteGradient("non-finite", rank=2, index=7)), sender=2)
    assert isinstance(told, NonFiniteGradient)
    assert (told.rank, told.index, str(told)) == (2, 7, "non-finite")


def test_other_errors_are_named():
    told = from_notice(to_notice(ZeroDivisionError("oh")), sender=1)
    assert isinstance(told, PeerError)
    assert str(told) == "rank 1 failed with ZeroDivisionError: oh"


@pytest.mark.parametrize("letter", ["x", "\u00e9", '"'])
def test_long_messages_are_cut_but_readable(letter):
    notice = to_notice(ValueError(letter * 100_000))
    assert len(notice) < 4000
    assert str(from_notice(notice, sender=0)) == "rank 0: " + letter * 500
