"""Token queues: how far this worker may go ahead of its out-neighbours.

An out-neighbour puts a token for every iteration that it enters; entering one takes a token of each. So the tokens of a
neighbour are its iteration − the own one + ``max_gap``, and with the last of them its iteration is known.
"""

from collections.abc import Iterable


class TokenQueues:
    """One worker's. ``max_gap`` None: there are no tokens, and nobody is waited for."""

    def __init__(self, givers: Iterable[int], max_gap: int | None) -> None:
        self._max_gap = max_gap
        self.iterations = dict.fromkeys(givers, 0)  # of out-neighbours that are there, as far as they have told
        self._tokens = dict.fromkeys(self.iterations, max_gap or 0)

    def put(self, giver: int, iteration: int) -> None:
        """It has entered that iteration, perhaps jumped there."""
        if giver in self.iterations:
            self._tokens[giver] += iteration - self.iterations[giver]
            self.iterations[giver] = iteration

    def leave(self, giver: int) -> None:
        """It trains no more: its tokens are without limit."""
        self.iterations.pop(giver, None)
        self._tokens.pop(giver, None)

    def size(self, giver: int) -> int:
        return self._tokens[giver]

    def enough_for(self, iterations: int) -> bool:
        """So many, of every neighbour."""
        return self._max_gap is None or all(tokens >= iterations for tokens in self._tokens.values())

    def take(self, iterations: int) -> None:
        for giver in self._tokens:
            self._tokens[giver] -= iterations

    @property
    def slowest(self) -> int | None:
        """The iteration of whoever is furthest behind; None if nobody is there."""
        return min(self.iterations.values(), default=None)
