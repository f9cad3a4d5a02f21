"""Notes as bytes: they come back, they are short, and what is no note is refused."""

import json
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spardl import WireError
from spardl.notes import Note, from_bytes, read_ranks, to_bytes, write_ranks
from spardl.protocols.results import Want
from spardl.protocols.rna.hierarchy import Working
from spardl.protocols.rna.notes import Commit, Go

NOTES = [Go(3, 4, (0, 2), 1, True), Commit(2, (1,), "terms"), Want(7, "worker"), Working(0.5), Working(2)]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_notes_come_back(note):
    assert from_bytes(to_bytes("worker", note)) == ("worker", note)


@pytest.mark.parametrize(
    "told",
    [
        "",
        "{",
        "5",
        "null",
        "[]",
        '["worker"]',
        '["worker", "Want"]',
        '["worker", "Want", "3", "worker"]',
        '["worker", "Want", null, "worker"]',
        '["worker", "Want", 1.5, "worker"]',
        '["worker", "Want", true, "worker"]',
        '["worker", "Want", 1, "worker", 2]',
        '["worker", "Want", 1, 2]',
        '[5, "Want", 1, "worker"]',
        '["worker", "Nothing"]',
        '["worker", ["Want"], 1]',
        '["worker", "Go", 1, 2, 3, 4, false]',
        '["worker", "Go", 1, 2, [0, 1], 4, false]',
        '["worker", "Go", 1, 2, "0-1,1", 4, false]',
        '["worker", "Commit", 1, "1", 2]',
        "[" * 100_000,
    ],
)
def test_what_is_no_note(told):
    with pytest.raises(WireError, match="no note of spardl's"):
        from_bytes(told.encode())


@given(st.sampled_from(NOTES), st.integers(0, 200), st.integers(0, 255))
def test_damaged_notes_are_notes_or_refused(note, place, byte):
    text = bytearray(to_bytes("worker", note))
    text[place % len(text)] = byte
    try:
        got = from_bytes(bytes(text))
    except WireError:
        return
    assert json.loads(to_bytes(*got))


def test_no_two_notes_have_the_same_name():
    with pytest.raises(TypeError, match="two notes with the name Want"):

        @dataclass(frozen=True)
        class Want(Note):
            pass


# -- sets of ranks -----------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 5000)).map(sorted).map(tuple))
def test_ranks_come_back(ranks):
    assert read_ranks(write_ranks(ranks)) == ranks


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.9, 1])
def test_a_go_is_short_for_4096_ranks(share):
    chance = random.Random(1)
    members = tuple(rank for rank in range(4096) if chance.random() < share)
    assert len(to_bytes("worker", Go(10**6, 10**6, members, 10**6))) < 760


@pytest.mark.parametrize(
    "text",
    [
        "3-1",
        "1,1",
        "2,1",
        "-1",
        "1-",
        "a",
        "1,,2",
        "0-99999999999",
        "4194304",
        "=",
        "=*",
        "= ",
        "²",
        "1.5",
        " 1",
        "1-2-3",
        5,
        "=" + "A" * 800_000,
    ],
)
def test_what_are_no_ranks(text):
    if text == "=":  # no bits at all
        assert read_ranks(text) == ()
        return
    with pytest.raises((ValueError, TypeError)):
        read_ranks(text)
