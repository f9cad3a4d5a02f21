"""A set of ranks from which one can be drawn by its place; adding, removing and drawing cost the same for any size."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload


class Roster(Sequence[int]):
    """In the order of arrival, but for ranks that were removed: the last takes the place of such a one."""

    def __init__(self, ranks: Iterable[int] = ()) -> None:
        self._ranks = list(ranks)
        self._places = {rank: place for place, rank in enumerate(self._ranks)}

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, rank: object) -> bool:
        return rank in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks)

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> list[int]: ...

    def __getitem__(self, place: int | slice) -> int | list[int]:
        return self._ranks[place]

    def add(self, rank: int) -> None:
        if rank not in self._places:
            self._places[rank] = len(self._ranks)
            self._ranks.append(rank)

    def discard(self, rank: int) -> None:
        place = self._places.pop(rank, None)
        if place is not None:
            last = self._ranks.pop()
            if last != rank:
                self._ranks[place] = last
                self._places[last] = place
