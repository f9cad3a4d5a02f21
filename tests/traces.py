"""What every timeline has to be, whoever wrote it."""

import json
from collections import defaultdict


def load(path):
    """The events of a merged file by (rank, track), and the names that it has for ranks and tracks."""
    trace = json.loads(path.read_text())
    events, ranks, tracks = defaultdict(list), {}, {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            events[event["pid"], event["tid"]].append(event)
        elif event["name"] == "process_name":
            ranks[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            tracks[event["pid"], event["tid"]] = event["args"]["name"]
    return events, ranks, tracks


def assert_sound(events, tracks):
    """In every track time goes on, and an event that begins inside another ends inside it."""
    for track, listed in events.items():
        assert track in tracks
        open_ends, last = [], 0
        for event in listed:
            began = round(1000 * event["ts"])  # nanoseconds, so that sums are exact
            ended = began + round(1000 * event["dur"])
            assert last <= began <= ended, event
            last = began
            while open_ends and open_ends[-1] <= began and not (began == ended == open_ends[-1]):
                open_ends.pop()
            assert not open_ends or ended <= open_ends[-1], event
            open_ends.append(ended)


def inside(listed, outer):
    """The events of a track that lie in ``outer``."""
    end = outer["ts"] + outer["dur"]
    return [e for e in listed if e is not outer and outer["ts"] <= e["ts"] and e["ts"] + e["dur"] <= end + 1e-3]
