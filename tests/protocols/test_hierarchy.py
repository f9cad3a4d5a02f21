"""What goes on between groups, mail by mail."""

import numpy as np

from spardl.effects import TRAINING, Mail, Next, Now, Post
from spardl.protocols.rna.hierarchy import (
    AVERAGER,
    ENDING,
    REPORTER,
    WATCH,
    AllEnded,
    GroupEnded,
    Iterated,
    Mean,
    Progress,
    Push,
    Regroup,
    Weights,
    Working,
    averager,
    ending,
    lead,
    reporter,
    watch,
)
from spardl.protocols.rna.notes import LEAD, WORKER, Offer, RoundsEnded
from spardl.protocols.rna.paces import REPORTS_EVERY, Paces


class Driven:
    """A process, and what it posts; the clock shows what tests set it to."""

    def __init__(self, process):
        self._process, self.now, self.ended = process, 0.0, False
        self._go_on(None)

    def _go_on(self, answer):
        posts = []
        try:
            while not isinstance(ask := self._process.send(answer), Next):
                if isinstance(ask, Post):
                    posts.append(ask)
                answer = self.now if isinstance(ask, Now) else None
        except StopIteration:
            self.ended = True
        return posts

    def hears(self, sender, note, array=None):
        return self._go_on(Mail(sender, note, array))


def as_bytes(*values):
    return np.array(values).view(np.uint8)


def test_a_group_moves_by_the_difference_to_the_mean():
    process = Driven(lead(3, 2, "float64"))
    (post,) = process.hears(3, Push(), np.array([1.0, 2.0]))
    assert (post.to, post.process, post.note) == (0, AVERAGER, Weights())
    np.testing.assert_array_equal(post.array.view(float), [1, 2])
    assert process.hears(3, Push(), np.array([9.0, 9.0])) == []  # those before are under way
    (post,) = process.hears(0, Mean(), as_bytes(4.0, 0.5))
    assert (post.to, post.process, post.note) == (3, WORKER, Offer())
    np.testing.assert_array_equal(post.array.delta, [3, -1.5])
    assert process.hears(0, Mean(), as_bytes(4.0, 0.5)) == []  # it was not asked for
    assert process.hears(3, RoundsEnded()) == [Post(0, ENDING, GroupEnded())]
    assert process.ended


def test_groups_count_by_their_ranks():
    process = Driven(averager([(0, 1, 2), (3,)], 1, "float64"))
    (post,) = process.hears(0, Weights(), as_bytes(4.0))
    assert (post.to, post.process, post.note) == (0, LEAD, Mean())
    np.testing.assert_array_equal(post.array.view(float), [4])
    (post,) = process.hears(3, Weights(), as_bytes(8.0))
    assert post.to == 3
    np.testing.assert_array_equal(post.array.view(float), [5])


def test_all_end_when_every_group_has():
    server, other = Driven(ending(0, 4, [(0, 1), (2,), (3,)])), Driven(ending(2, 4, [(0, 1), (2,), (3,)]))
    assert server.hears(2, GroupEnded()) + server.hears(0, GroupEnded()) == []
    assert server.hears(3, GroupEnded()) == [Post(rank, ENDING, AllEnded()) for rank in range(4)]
    assert not server.ended
    for process in (server, other):
        assert process.hears(0, AllEnded()) == []
        assert process.ended


def test_reports_come_every_few_iterations_or_after_a_while():
    process = Driven(reporter(2, every=10.0))
    for _ in range(REPORTS_EVERY - 1):
        assert process.hears(2, Iterated(0.5)) == []
    assert process.hears(2, Iterated(0.25)) == [Post(0, WATCH, Working(0.25))]
    assert process.hears(2, Iterated(0.5)) == []
    process.now = 11.0
    assert process.hears(2, Iterated(0.5)) == [Post(0, WATCH, Working(0.5))]
    for note in (Regroup(), Progress()):
        assert process.hears(0, note) == [Post(2, TRAINING, note)]


def test_the_watch_calls_for_other_groups_once():
    process = Driven(watch(2, Paces([(0, 1)]), every=10.0))
    posts = [
        post for _ in range(4) for rank, pace in ((0, 0.1), (1, 0.9)) for post in process.hears(rank, Working(pace))
    ]
    assert posts == [Post(rank, REPORTER, Regroup()) for rank in range(2)]
    process.now = 10.5
    assert process.hears(0, Working(0.1)) == [Post(rank, REPORTER, Progress()) for rank in range(2)]
    assert process.hears(1, Working(0.9)) == []
