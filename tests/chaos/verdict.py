"""Whether a job that was struck ended as it should, judged from what its ranks told."""

import re
from dataclasses import dataclass
from typing import Any

from injection import OWN_DEEDS, PAUSE, Injection
from job import LAUNCHER, Course


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, and what the survivors' errors said."""

    missed: bool  # the job was over, or nearly, when the fault came: it says nothing
    hung: tuple[str, ...]  # processes that were there when time was up
    silent: str  # why the job's success is not to be believed
    needless: str  # an error although no rank had failed
    named: int  # errors of survivors that name a rank
    wrong: tuple[str, ...]  # those that name one that is well
    unnamed: tuple[str, ...]  # those that name nobody
    seconds: float  # from the fault to the end of the last process

    @property
    def is_bad(self) -> bool:
        return bool(self.hung or self.silent or self.needless)


def judge(injection: Injection, course: Course) -> Verdict:
    """The verdict on one injection."""
    victim = injection.victim
    failed = not _is_harmless(injection, course)
    errors = [error for error in course.told("error") if error["rank"] != victim]
    names = [(error, blamed(error)) for error in errors]
    return Verdict(
        missed=injection.fault != PAUSE and not failed and not errors,
        hung=_hung(injection, course, failed),
        silent=_silence(injection, course, failed),
        needless="" if failed else "; ".join(map(_quote, _uncalled_for(injection, course))),
        named=sum(bool(ranks) for _, ranks in names) if failed else 0,
        wrong=tuple(_quote(error) for error, ranks in names if failed and ranks - {victim}),
        unnamed=tuple(_quote(error) for error, ranks in names if failed and not ranks),
        seconds=course.seconds,
    )


def blamed(error: dict[str, Any]) -> set[int]:
    """The ranks that an error says are at fault: in ``ranks``, or in words.

    Whoever only waits for them, or passes on another rank's words about them, is not blamed.
    """
    if error["ranks"]:
        return set(error["ranks"])
    text = re.sub(r"rank \d+ waits for (rank \d+|all ranks)", "", error["text"])
    relayed = re.match(r"rank \d+ (failed|ended) with \w+: (?=.*\branks? \d)", text, re.DOTALL)
    if relayed:
        text = text[relayed.end() :]
    lists = re.findall(r"\branks? (\d+(?:(?:, | and |, and )(?:rank )?\d+)*)", text)
    return {int(rank) for found in lists for rank in re.findall(r"\d+", found)} - {error["rank"]}


def _is_harmless(injection: Injection, course: Course) -> bool:
    """Whether no rank was ended or stopped for ever before the work was done."""
    if course.struck is None or injection.fault == PAUSE:
        return True
    if injection.fault in OWN_DEEDS and not course.told("struck"):
        return True  # it had no more steps, between which to strike
    ranks = {done["rank"] for done in course.told("done")}
    survivors = set(range(injection.ranks)) - {injection.victim}
    return bool(course.told("finishing", injection.victim)) and ranks >= survivors


def _uncalled_for(injection: Injection, course: Course) -> list[dict[str, Any]]:
    """The errors where none should be: all but the one that a victim was asked for when its work was done."""
    asked = course.struck is not None and injection.fault in OWN_DEEDS
    return [error for error in course.told("error") if not (asked and error["rank"] == injection.victim)]


def _hung(injection: Injection, course: Course, failed: bool) -> tuple[str, ...]:
    if not failed and injection.fault != PAUSE and len(course.told("done")) >= injection.ranks - 1:
        return ()  # the work was done, and nothing of ours runs any more: MPI waits for the stopped rank
    where = {LAUNCHER: "mpiexec", injection.victim: f"rank {injection.victim}, the victim"}
    return tuple(where.get(rank, f"rank {rank}") for rank in course.hung)


def _silence(injection: Injection, course: Course, failed: bool) -> str:
    digests = {done["rank"]: done["digest"] for done in course.told("done")}
    if len(set(digests.values())) > 1:
        return f"ranks have different results: {digests}"
    if not failed:
        complete = len(digests) == injection.ranks and course.code == 0
        if complete or course.told("error") or (course.struck is not None and injection.fault != PAUSE):
            return ""
        return f"no rank failed, yet only {sorted(digests)} are done; exit code {course.code}"
    if course.code == 0 and not _was_ended_by_the_launcher(injection, course):
        return "exit code 0"
    unaware = set(digests) - {injection.victim}
    if unaware and not course.told("finishing", injection.victim):
        return f"ranks {sorted(unaware)} are done, without rank {injection.victim}"
    return ""


def _was_ended_by_the_launcher(injection: Injection, course: Course) -> bool:
    """MPICH's mpiexec kills the others when a rank ends without MPI_Finalize, and takes over its exit code, also 0."""
    survivors = [m for m in course.messages if m["rank"] != injection.victim]
    spoke = any(message["what"] in ("error", "done") for message in survivors)
    return injection.cleanup and injection.fault == "os._exit(0)" and not spoke


def _quote(error: dict[str, Any]) -> str:
    return f"rank {error['rank']}: {error['type']}: {error['text']}"
