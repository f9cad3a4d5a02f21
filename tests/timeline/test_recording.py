"""Collectives under a recorder do the same, and leave events that nest; in loopback, so without MPI."""

import json
import threading

import numpy as np
import pytest
from configurations import Setup, bits, setups
from disk import full_after
from hypothesis import given, settings
from traces import assert_sound, inside, load

from spardl import kernels, loopback
from spardl.effects import Allreduce, Exchange, Flush, Recv, Send
from spardl.timeline import merge, recorder
from spardl.timeline.recorder import Recorder
from spardl.timeline.traced import traced, traced_kernels

SETUP = Setup(4, 2, "r", 3000, 60, "float32", "auto", 1, None)


def recorders(path, ranks):
    return [Recorder(str(path), rank, ranks, f"node{rank // 2}") for rank in range(ranks)]


def close(opened):
    for each in reversed(opened):  # rank 0 merges
        each.close()


def reduce_traced(setup, path):
    opened = recorders(path, setup.ranks)
    reducers = setup.reducers(["numpy"])
    for reducer, each in zip(reducers, opened, strict=True):
        reducer._kernels = traced_kernels(each, reducer._kernels)
        reducer.rebudget(setup.k)  # the selector is built anew, with these kernels
    grads = setup.float_gradients(np.random.default_rng(setup.seed))
    tracks = [each.new_track("reduces") for each in opened]
    results = loopback(
        [
            traced(each, track, "reduce", reducer.reduce(grad))
            for each, track, reducer, grad in zip(opened, tracks, reducers, grads, strict=True)
        ],
        seed=setup.order,
    )
    close(opened)
    return results, grads


@given(setup=setups(max_n=1200))
@settings(max_examples=60)
def test_results_are_the_same_and_events_nest(tmp_path_factory, setup):
    path = tmp_path_factory.mktemp("timeline") / "trace.json"
    results, grads = reduce_traced(setup, path)
    plain = setup.reduce(setup.reducers(["numpy"]), grads)
    assert [bits(result) for result in results] == [bits(result) for result in plain]
    events, ranks, tracks = load(path)
    assert ranks == {rank: f"rank {rank} on node{rank // 2}" for rank in range(setup.ranks)}
    assert_sound(events, tracks)
    assert [file.name for file in path.parent.iterdir()] == ["trace.json"]


def test_a_call_has_rounds_with_peers_and_bytes_and_kernels(tmp_path):
    reduce_traced(SETUP, tmp_path / "trace.json")
    events, _, tracks = load(tmp_path / "trace.json")
    sent, received = {}, {}
    for rank in range(SETUP.ranks):
        listed = events[rank, 1]
        assert tracks[rank, 1] == "reduces"
        (call,) = [event for event in listed if event["cat"] == "call"]
        assert len(inside(listed, call)) == len(listed) - 1
        rounds = {event["name"]: inside(listed, event) for event in listed if event["cat"] == "round"}
        assert "Spar-Reduce-Scatter round 0" in rounds
        for name, within in rounds.items():
            for event in within:
                peers = event["args"]
                if "to" in peers:
                    sent[rank, name, peers["to"]] = peers["bytes_sent"]
                if "from" in peers:
                    received[peers["from"], name, rank] = peers["bytes_received"]
                    assert event["name"] == f"wait for rank {peers['from']}"
        computing = [inside(listed, event) for event in listed if event["cat"] == "compute"]
        kernel_names = {event["name"] for within in computing for event in within if event["cat"] == "kernel"}
        assert {"accumulate", "select"} <= kernel_names
    assert sent == received
    assert sent


def test_every_effect_has_an_event_and_an_unfinished_call_ends_where_it_was_closed(tmp_path):
    each = Recorder(str(tmp_path / "trace.json"), 0, 1, "here")

    def collective():
        yield Send(1, b"abc", "first")
        assert (yield Recv(2, "first")) == b"12345"
        yield Exchange(3, [np.zeros(2, np.uint8), np.zeros(5, np.uint8)], 4, "second")
        yield Allreduce(np.zeros(1), np.zeros(1), "third")
        yield Flush()
        yield Recv(5, "fourth")

    part = traced(each, each.new_track("calls"), "mine", collective())
    for answer in (None, None, b"12345", b"1", None, None):
        part.send(answer)
    part.close()
    each.close()
    events, _, tracks = load(tmp_path / "trace.json")
    assert_sound(events, tracks)
    named = {event["name"]: event["args"] for event in events[0, 1] if event["cat"] in ("send", "wait")}
    assert named == {
        "send to rank 1": {"to": 1, "bytes_sent": 3},
        "wait for rank 2": {"from": 2, "bytes_received": 5},
        "wait for rank 4": {"to": 3, "bytes_sent": 7, "from": 4, "bytes_received": 1},
        "wait for all ranks": {},
        "wait for delivery": {},
        "wait for rank 5": {"from": 5, "bytes_received": 0},
    }
    rounds = [event["name"] for event in events[0, 1] if event["cat"] == "round"]
    assert rounds == ["first", "second", "third", "fourth"]


def test_an_error_goes_through(tmp_path):
    each = Recorder(str(tmp_path / "trace.json"), 0, 1, "here")

    def collective():
        yield Send(1, b"abc", "first")
        raise ValueError("as it was")

    part = traced(each, each.new_track("calls"), "mine", collective())
    next(part)
    with pytest.raises(ValueError, match="as it was"):
        part.send(None)
    each.close()
    events, _, tracks = load(tmp_path / "trace.json")
    assert_sound(events, tracks)
    assert events[0, 1][0]["name"] == "mine"


def test_without_a_timeline_kernels_are_what_they_were():
    chosen = kernels.load()
    assert traced_kernels(None, chosen) is chosen


def test_threads_have_tracks_of_their_own(tmp_path):
    each = Recorder(str(tmp_path / "trace.json"), 0, 1, "here")

    def work():
        with each.span("beside", {}):
            pass

    with each.span("main", {"step": 3}):
        thread = threading.Thread(target=work, name="helper")
        thread.start()
        thread.join()
    each.close()
    events, _, tracks = load(tmp_path / "trace.json")
    assert tracks == {(0, 0): "training", (0, 1): "helper"}
    assert [[event["name"] for event in events[0, track]] for track in (0, 1)] == [["main"], ["beside"]]
    assert events[0, 0][0]["args"] == {"step": 3}


def test_memory_and_file_are_bounded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(recorder, "_MOST_EVENTS", 500)
    monkeypatch.setattr(recorder, "_CHUNK", 10)
    each = Recorder(str(tmp_path / "trace.json"), 0, 1, "here")
    for number in range(2000):
        each.add(0, f"event {number}", "x", each.now(), each.now())
        assert len(each._events) < 10
    each.close()
    events, _, _ = load(tmp_path / "trace.json")
    assert len(events[0, 0]) == 500
    assert "rank 0's timeline is full: its first 500 events" in caplog.text


def test_of_two_events_at_the_same_time_the_outer_one_comes_first(tmp_path):
    each = Recorder(str(tmp_path / "trace.json"), 0, 1, "here")
    began, ended = each.now(), each.now()
    for name in ("innermost", "inner", "outer"):  # in the order in which they end
        each.add(0, name, "x", began, ended)
    each.close()
    events, _, _ = load(tmp_path / "trace.json")
    assert [event["name"] for event in events[0, 0]] == ["outer", "inner", "innermost"]


def test_clocks_that_differ_are_put_right(tmp_path):
    path = tmp_path / "trace.json"
    opened = recorders(path, 2)
    opened[1]._to_wall_clock -= 10**12  # sixteen minutes behind
    opened[1].set_clock_offset(10**12)
    for each in opened:
        with each.span("both", {}):
            pass
    close(opened)
    events, _, _ = load(path)
    starts = [events[rank, 0][0]["ts"] for rank in range(2)]
    assert abs(starts[0] - starts[1]) < 5e6  # microseconds; they were recorded right after each other
    assert min(starts) >= 0


def test_a_rank_that_was_killed_holds_nobody_up_and_leaves_what_it_wrote(tmp_path, monkeypatch, caplog):
    path = tmp_path / "trace.json"
    monkeypatch.setattr(merge, "_WAIT_FOR_OTHERS", 0.1)
    opened = recorders(path, 3)
    for each in opened:
        each.add(0, "work", "x", each.now(), each.now())
        each._flush()
    opened[1]._file.write('[0, "cut o')
    opened[1]._file.close()
    opened[2].close()
    opened[0].close()
    assert "the files of ranks 1 are not finished" in caplog.text
    events, ranks, _ = load(path)
    assert sorted(ranks) == [0, 1, 2]
    assert [event["name"] for event in events[1, 0]] == ["work"]
    assert (tmp_path / "trace.json.rank2").exists()  # to be merged again
    assert merge.merge(path) == [0, 1, 2]


def test_files_of_an_earlier_run_are_not_merged(tmp_path):
    path = tmp_path / "trace.json"
    for rank, ranks, began in ((0, 2, 20), (1, 2, 21), (1, 3, 10), (2, 3, 10)):
        name = f"trace.json.rank{rank}" + (".part" if ranks == 3 and rank == 1 else "")
        (tmp_path / name).write_text(json.dumps({"rank": rank, "ranks": ranks, "host": "h", "began": began}) + "\n")
    assert merge.merge(path) == [0, 1]


def test_a_folder_that_cannot_be_written_is_no_reason_not_to_train(tmp_path, monkeypatch, caplog):
    from spardl import timeline

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPARDL_TIMELINE", str(tmp_path / "file" / "trace.json"))
    timeline.begin(0, 1, "here")
    assert timeline.current() is None
    assert "rank 0 has no timeline: " in caplog.text


@pytest.mark.parametrize("size", [0, 3000])
def test_a_full_disk_ends_the_timeline_and_not_the_training(tmp_path, caplog, size):
    path = tmp_path / "trace.json"
    with full_after(size):
        each = Recorder(str(path), 0, 1, "here")
        for number in range(3):
            for _ in range(100):
                each.add(each.new_track("reduces"), f"event {number}", "x", each.now(), each.now())
            each._flush()
        each.close()
    assert caplog.text.count("rank 0's timeline ends here, training goes on: ") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json.rank0"]
    if size:
        assert f"{path} cannot be written" in caplog.text  # the merged file is larger
        assert merge.merge(path) == [0]
        load(path)
