"""Who of a group gives a sign of life when it is asked for one."""

import threading

from spardl.errors import PeerTimeout
from spardl.runtime import farewell
from spardl.runtime.group import Group
from spardl.runtime.neighbour import State
from spardl.runtime.stall import answering_grace, blamed, longer_limit
from spardl.sync.notes import Ping, to_bytes
from spardl.sync.post import Post


class RollCall:
    """Training's thread asks, by ``timed_out``; the communicating one sends and hears."""

    def __init__(self, group: Group, post: Post) -> None:
        self._group, self._post = group, post
        self._asks = False
        self._heard: set[int] = set()
        self._changed = threading.Condition()

    # -- for the communicating thread ----------------------------------------------------------------------------------

    def hear(self, sender: int) -> None:
        """Any note is a sign of life."""
        with self._changed:
            self._heard.add(sender)
            self._changed.notify_all()

    def advance(self) -> None:
        if self._asks:
            self._asks = False
            self._post.tell_all(to_bytes(Ping()))

    # -- for training's ------------------------------------------------------------------------------------------------

    def timed_out(self, what: str, timeout: float) -> PeerTimeout:
        """``what`` has not happened in time: an error that names those who do not answer."""
        silent = self._silent(answering_grace(timeout))
        states = self._group.neighbours()
        gone, runs = ({at for at, state in states.items() if state is kind} for kind in (State.GONE, State.RUNS))
        ranks = tuple(self._group.ranks[at] for at in blamed(silent, gone, runs))
        farewell.lose(self._group.line, ranks)
        if ranks:
            many = len(ranks) > 1
            who = f"Rank{'s' * many} {', '.join(map(str, ranks))} give{'s' * (not many)} no sign of life."
        else:
            who = "Every rank answers, so one of them has to be busy with something else."
        return PeerTimeout(f"{what} within {timeout:g} s. {who} {longer_limit()}", ranks=ranks)

    def _silent(self, seconds: float) -> set[int]:
        others = set(range(self._group.size)) - {self._group.me}
        with self._changed:
            self._heard.clear()
            self._asks = True
            self._changed.wait_for(lambda: others <= self._heard, seconds)
            return set() if self._asks else others - self._heard  # not even asked: this rank itself is stuck
