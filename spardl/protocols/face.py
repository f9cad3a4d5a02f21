"""What training sees of a system's processes: it waits for their mail, but not for ever.

Every method that takes time is a process, or a part of one: on real ranks the user's thread drives it, blocking.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from spardl.effects import Mail, Next, Now, Post, Process
from spardl.errors import PeerTimeout
from spardl.protocols.liveness import ROLL_CALL, CallRoll, Silent
from spardl.protocols.metrics import Metrics
from spardl.runtime.process import Ended


class Face(ABC):
    """One rank's. ``limit``: seconds to wait for others; ``grace`` of them are for asking who is there.

    ``blame`` makes of the ranks that give no sign of life, by position, those that the error names; ``advice`` ends its
    text.
    """

    def __init__(
        self,
        me: int,
        *,
        limit: float,
        grace: float,
        metrics: Metrics | None = None,
        blame: Callable[[frozenset[int]], tuple[int, ...]] = lambda silent: tuple(sorted(silent)),
        advice: str = "",
    ) -> None:
        self._me = me
        self._limit, self._grace, self._blame, self._advice = limit, grace, blame, advice
        self.metrics = Metrics() if metrics is None else metrics
        self._silent: frozenset[int] | None = None
        self._ended = False

    @abstractmethod
    def _take_note(self, note: Any, array: Any) -> None:
        """Mail of the system's own has come."""

    def _take(self, mail: Mail) -> None:
        if isinstance(mail.note, Silent):
            self._silent = mail.note.ranks
        elif isinstance(mail.note, Ended):
            self._ended = True
        else:
            self._take_note(mail.note, mail.array)

    def _take_what_is_there(self) -> Process[None]:
        while (mail := (yield Next(0))) is not None:
            self._take(mail)

    def _take_next(self, deadline: float, what: str) -> Process[None]:
        """Raises at the deadline, which leaves time to ask who is there, that ``what`` has not happened."""
        mail = yield Next(max(0.0, deadline - (yield Now())))
        if mail is None:
            raise (yield from self._timed_out(what))
        self._take(mail)

    def _deadline(self) -> Process[float]:
        now: float = yield Now()
        return now + self._limit - self._grace

    def _wait_for_the_end(self, what: str) -> Process[None]:
        """Others may have much left to do: the time limit is for hearing nothing of them at all."""
        while not self._ended:
            yield from self._take_next((yield from self._deadline()), what)

    def _timed_out(self, what: str) -> Process[PeerTimeout]:
        """``what`` has not happened in time: an error that names those who give no sign of life."""
        self._silent = None
        yield Post(self._me, ROLL_CALL, CallRoll(self._grace))
        deadline = (yield Now()) + 1.5 * self._grace
        while self._silent is None:
            mail: Any = yield Next(max(0.0, deadline - (yield Now())))
            if mail is None:  # this rank itself is stuck
                break
            self._take(mail)
        ranks = self._blame(self._silent or frozenset())
        many = len(ranks) > 1
        who = (
            f"Rank{'s' * many} {', '.join(map(str, ranks))} give{'s' * (not many)} no sign of life."
            if ranks
            else "Every rank answers, so one of them has to be busy with something else."
        )
        return PeerTimeout(f"{what} within {self._limit:g} s. {who} {self._advice}".rstrip(), ranks=ranks)
