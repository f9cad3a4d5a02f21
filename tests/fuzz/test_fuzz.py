"""A slice of ``make fuzz``, and that it would notice what it is there for."""

import fuzz
import pytest
from decoding import try_frames
from reducing import COLLECTIVES, try_messages
from tally import CRASHED, REFUSED, WRONG

from spardl import wire
from spardl.collectives.rivals import RIVALS
from spardl.kernels.memory import HostArrays
from spardl.runtime import loopback


def test_damaged_frames_are_refused_or_equal():
    tally = try_frames(11, 2000)
    assert tally.passed, tally.stories
    assert tally.counts.total() == 3 * 2000
    assert tally.total(REFUSED) > 4000


def test_damaged_messages_are_refused_or_equal():
    tally = try_messages(11, 60)
    assert tally.passed, tally.stories
    assert tally.counts.total() == 60
    assert set(COLLECTIVES) >= {"spardl", *RIVALS} - {"dense_mpi"}


def test_a_decoder_that_trusts_values_is_noticed(monkeypatch):
    monkeypatch.setattr(wire, "require_whole_frame", lambda frame: None)
    assert try_frames(1, 300).total(WRONG)


def test_a_decoder_that_trusts_indices_is_noticed(monkeypatch):
    monkeypatch.setattr(HostArrays, "_placed", lambda self, stored, base, _, dtype: self.shift(stored, base, dtype))
    assert try_frames(1, 300).total(WRONG)


def test_a_runtime_without_checksums_is_noticed(monkeypatch):
    monkeypatch.setattr(loopback, "checked_stamp", lambda message, sender: None)
    tally = try_messages(1, 40)
    assert tally.total(WRONG) or tally.total(CRASHED)


@pytest.mark.parametrize(
    ("program", "story"), [("import os; os.abort()", "exit code -6"), ("raise IndexError", "IndexError")]
)
def test_a_process_that_dies_is_noticed(monkeypatch, tmp_path, program, story):
    path = tmp_path / "dies.py"
    path.write_text(program)
    monkeypatch.setattr(fuzz, "__file__", str(path))
    tally = fuzz.run("frames", 1, 10, limited=False)
    assert tally.total(CRASHED) == 1
    assert story in tally.stories[0]
