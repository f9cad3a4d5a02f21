"""The timeline of a real training job: its file is what viewers expect, and tells what happened."""

import pytest
from click.testing import CliRunner
from mpi.launcher import run
from traces import assert_sound, inside, load

from spardl.cli import main


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Events and tracks of a job of four ranks that trains in two ways."""
    path = tmp_path_factory.mktemp("timeline") / "trace.json"
    run(4, "-m", "spardl", "train", "--epochs", 1, "--timeline", path, "--sync", "spardl", "--sync", "rna-sparse")
    events, ranks, tracks = load(path)
    assert sorted(ranks) == [0, 1, 2, 3]
    assert all(name.startswith(f"rank {rank} on ") for rank, name in ranks.items())
    assert_sound(events, tracks)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    return events, {rank: {tracks[key]: key[1] for key in tracks if key[0] == rank} for rank in ranks}


def track_of_reduces(tracks):
    """The only one: objects are numbered, and there are others than reducers."""
    (track,) = [track for name, track in tracks.items() if name.startswith("SparseAllreduce.reduce ")]
    return track


@pytest.mark.launches
def test_every_step_of_four_ranks(trace):
    events, tracks = trace
    for rank in range(4):
        training = events[rank, tracks[rank]["training"]]
        rna_begins = next(event["ts"] for event in training if event["name"] == "deposit")
        training = [event for event in training if event["ts"] < rna_begins]
        steps = [event for event in training if event["name"] == "synchronize"]
        assert [event["args"]["step"] for event in steps] == list(range(len(steps)))
        assert len(steps) == 22  # 1,438 images in batches of 64
        assert sum(event["name"] == "apply" for event in training) == len(steps)
        for step in steps:
            names = {event["name"] for event in inside(training, step)}
            assert {"fill buckets", "wait for buckets", "write gradients back"} <= names
        reduces = events[rank, track_of_reduces(tracks[rank])]
        calls = [event for event in reduces if event["cat"] == "call"]
        assert len(calls) == len(steps)
        for call in calls:
            within = inside(reduces, call)
            kinds = {event["cat"] for event in within}
            assert {"round", "wait", "send", "compute", "kernel"} <= kinds
            assert "select" in {event["name"] for event in within}
    # With one clock for all, nobody has a message before it was sent: rank 0's last step cannot be over before
    # the others' has begun.
    last = [events[rank, track_of_reduces(tracks[rank])] for rank in range(4)]
    last = [[event for event in listed if event["cat"] == "call"][-1] for listed in last]
    ends = [event["ts"] + event["dur"] for event in last]
    assert max(event["ts"] for event in last) < min(ends)


@pytest.mark.launches
def test_rna_has_training_and_communication_beside_each_other(trace):
    events, tracks = trace
    for rank in range(4):
        assert any(event["name"] == "deposit" for event in events[rank, tracks[rank]["training"]])
        rounds = [track for name, track in tracks[rank].items() if name.startswith("RNA's round")]
        assert any(event["cat"] == "round" for track in rounds for event in events[rank, track])


def test_merging_nothing(tmp_path):
    result = CliRunner().invoke(main, ["timeline", str(tmp_path / "trace.json")])
    assert result.exit_code == 1
    assert "trace.json.rank0" in result.output


def test_merging_what_is_there(tmp_path):
    for rank in (0, 2):
        header = f'{{"rank": {rank}, "ranks": 3, "host": "h", "began": {rank}}}\n'
        (tmp_path / f"trace.json.rank{rank}").write_text(header)
    result = CliRunner().invoke(main, ["timeline", str(tmp_path / "trace.json")])
    assert result.exit_code == 0
    assert "trace.json: ranks 0, 2" in result.output
    assert load(tmp_path / "trace.json")[1] == {0: "rank 0 on h", 2: "rank 2 on h"}
