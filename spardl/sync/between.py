"""What goes on between groups: their weights are averaged, and all begin and end together.

Rank 0 serves. Each group's lead hands in its weights now and then and gets the mean of all groups' latest; the group
then moves by the difference, in a round that brings this shift to all its ranks at the same place among the others. No
group waits for another before the end.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from spardl.agreement import open_channel
from spardl.collectives.bruck import bruck
from spardl.errors import from_notice
from spardl.runtime.channel import Told
from spardl.runtime.group import Group
from spardl.runtime.mpi import Task
from spardl.sync.averaging import Averager
from spardl.sync.notes import Ended, Fault, Note, Ping, Pong, Progress, Regroup, Working, from_bytes, to_bytes
from spardl.sync.paces import REPORTS_EVERY, Groups, Pace, Paces
from spardl.sync.parts import Shift
from spardl.sync.post import Post
from spardl.sync.rollcall import RollCall

SERVER = 0
_NOTHING = np.empty(0, np.uint8)


class Between:
    """One rank's part. ``push`` and ``wants_regroup`` are for training, the rest for the communicating thread.

    ``pace``: training keeps it. ``regroups``: whether to watch paces and call for other groups.
    """

    def __init__(
        self, everyone: Group, groups: Groups, dtype: npt.DTypeLike, pace: Pace, *, regroups: bool, timeout: float
    ) -> None:
        self._everyone, self._groups, self._timeout = everyone, groups, timeout
        self._dtype = np.dtype(dtype)
        self._closing, post = (open_channel(everyone, dict, timeout, "RNA between groups") for _ in range(2))
        self.post = Post(post)
        self.roll = RollCall(everyone, self.post)
        self._averager = Averager([len(group) for group in groups])
        self._paces = Paces(groups) if regroups else None
        self._leads = {group[0]: number for number, group in enumerate(groups)}
        self.is_lead = everyone.me in self._leads
        self._to_end = set(self._leads)
        self._handed_in: npt.NDArray[Any] | None = None  # and not yet sent
        self._asked_for: npt.NDArray[Any] | None = None  # weights whose mean with others is under way
        self._meeting: Task[Any] | None = None
        self._pace = pace  # which training keeps
        self._reported_iterations = pace.iterations
        self._reported_at = self._told_at = time.monotonic()
        self.wants_regroup = False
        self.heard = 0  # signs of life of others

    # -- for training --------------------------------------------------------------------------------------------------

    def push(self, weights: npt.NDArray[Any]) -> None:
        """Hands the group's weights in, unless those before are still under way; keeps the array."""
        if len(self._groups) > 1 and self._handed_in is None and self._asked_for is None:
            self._handed_in = weights

    # -- for the communicating thread ----------------------------------------------------------------------------------

    def advance(self, offer: Callable[[Shift], None]) -> bool:
        """Moves what can be moved; ``offer`` takes a shift for this lead's group."""
        self._report()
        moved = self._take_notes()
        if self._handed_in is not None:
            self._asked_for, self._handed_in, moved = self._handed_in, None, True
            if self._everyone.me == SERVER:
                self._got_mean(self._averager.push(self._leads[SERVER], self._asked_for), offer)
            else:
                self.post.send_parcel(SERVER, self._asked_for.view(np.uint8))
        while (found := self.post.next_parcel()) is not None:
            moved = True
            sender, values = found[0], found[1].view(self._dtype)
            if self._everyone.me == SERVER:
                self.post.send_parcel(sender, self._averager.push(self._leads[sender], values).view(np.uint8))
            else:
                self._got_mean(values, offer)
        self.post.sweep()
        return moved

    def end_group(self) -> None:
        """The group is through with its rounds."""
        if self.is_lead:
            self.post.send_note(SERVER, to_bytes(Ended()))

    @property
    def group_can_end(self) -> bool:
        """Whether nothing of the group is under way here."""
        return self._handed_in is None and self._asked_for is None

    @property
    def all_ended(self) -> bool:
        return self._meeting is not None and self._meeting.done

    def advance_end(self) -> bool:
        """Towards the end, when the group has ended: nothing is in flight when ``all_ended``."""
        if self._meeting is None or not self.post.sweep():
            return False
        return self._meeting.advance()

    # ------------------------------------------------------------------------------------------------------------------

    def _got_mean(self, mean: npt.NDArray[Any], offer: Callable[[Shift], None]) -> None:
        offer(Shift(mean - self._asked_for))
        self._asked_for = None

    def _report(self) -> None:
        """Enough of it for groups to be judged by, and so that nobody takes us for dead."""
        new, now = self._pace.iterations - self._reported_iterations, time.monotonic()
        if new >= REPORTS_EVERY or (new and now > self._reported_at + self._timeout / 8):
            self._reported_iterations, self._reported_at = self._pace.iterations, now
            self.post.send_note(SERVER, to_bytes(Working(self._pace.seconds)))

    def _take_notes(self) -> bool:
        moved = False
        while (found := self.post.next_note()) is not None:
            moved = True
            self._take(found[0], from_bytes(found[1]))
        return moved

    def _take(self, sender: int, note: Note) -> None:
        self.roll.hear(sender)
        if isinstance(note, Ping):  # which is no sign that training goes on
            self.post.send_note(sender, to_bytes(Pong()))
            return
        if isinstance(note, Pong):
            return
        self.heard += 1
        if isinstance(note, Fault):
            raise Told(from_notice(note.text.encode(), self._everyone.ranks[sender]))
        if isinstance(note, Working):
            if self._paces is not None and self._paces.report(sender, note.seconds) and not self.wants_regroup:
                self.wants_regroup = True
                self.post.tell_all(to_bytes(Regroup()))
            if time.monotonic() > self._told_at + self._timeout / 8:
                self._told_at = time.monotonic()
                self.post.tell_all(to_bytes(Progress()))
        elif isinstance(note, Regroup):
            self.wants_regroup = True
        elif isinstance(note, Ended) and self._to_end:
            self._to_end = self._to_end - {sender} if self._everyone.me == SERVER else set()
            if not self._to_end:
                self._all_have_ended()

    def _all_have_ended(self) -> None:
        if self._everyone.me == SERVER:
            self.post.tell_all(to_bytes(Ended()))
        meeting = bruck(range(self._everyone.size), self._everyone.me, _NOTHING)
        self._meeting = Task(self._closing, meeting, self._timeout, "RNA's end between groups")
