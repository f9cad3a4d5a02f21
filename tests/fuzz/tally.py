"""What became of damaged bytes, counted by kind of damage and by who read them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

REFUSED, EQUAL, SOUND, WRONG, CRASHED = "refused", "equal", "sound", "wrong", "crashed"
NAMES = ("damage", "checksum", "reader")
VERDICTS = (REFUSED, EQUAL, SOUND, WRONG, CRASHED)


class Tally:
    """Counts of verdicts by (damage, checksum, reader), and the first few stories of what went wrong."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str, str]] = Counter()
        self.stories: list[str] = []

    def add(self, damage: str, checksum: str, reader: str, verdict: str, story: str = "") -> None:
        self.counts[damage, checksum, reader, verdict] += 1
        if verdict in (WRONG, CRASHED):
            self.stories.append(f"{verdict}: {damage}, checksum {checksum}, {reader}: {story}")

    def to_json(self) -> dict[str, Any]:
        return {"counts": [[*key, count] for key, count in self.counts.items()], "stories": self.stories[:5]}

    def add_json(self, told: dict[str, Any]) -> None:
        for *key, count in told["counts"]:
            self.counts[tuple(key)] += count
        self.stories += told["stories"]

    def rows(self, by: tuple[str, ...]) -> Iterable[dict[str, Any]]:
        """One for each combination of those ``by`` which they are to be told apart, and one for all."""
        counted: dict[tuple[str, ...], Counter[str]] = {}
        for (*kind, verdict), count in sorted(self.counts.items()):
            named = dict(zip(NAMES, kind, strict=True))
            counted.setdefault(tuple(named[name] for name in by), Counter())[verdict] += count
        for kind, counts in sorted(counted.items()):
            yield dict(zip(by, kind, strict=True)) | self._row(counts)
        yield {by[0]: "all"} | self._row(Counter({verdict: self.total(verdict) for verdict in VERDICTS}))

    def _row(self, counts: Counter[str]) -> dict[str, int]:
        return {"tried": counts.total()} | {verdict: counts[verdict] for verdict in VERDICTS}

    def total(self, verdict: str) -> int:
        return sum(count for key, count in self.counts.items() if key[3] == verdict)

    @property
    def passed(self) -> bool:
        return not (self.total(WRONG) or self.total(CRASHED))
