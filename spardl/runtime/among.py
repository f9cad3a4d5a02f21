"""A collective among some ranks, as a part of something among all of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from spardl.effects import Collective, Exchange, Recv, Send
from spardl.errors import TELLS_OF_RANKS

Result = TypeVar("Result")


def among(members: Sequence[int], collective: Collective[Result]) -> Collective[Result]:
    """``collective`` speaks of positions in ``members``; what comes out speaks of ranks."""
    answer: Any = None
    while True:
        try:
            effect = collective.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except TELLS_OF_RANKS as error:
            raise error.among(members) from None
        if isinstance(effect, Exchange):
            effect = replace(effect, to=members[effect.to], source=members[effect.source])
        elif isinstance(effect, Send):
            effect = replace(effect, to=members[effect.to])
        elif isinstance(effect, Recv):
            effect = replace(effect, source=members[effect.source])
        try:
            answer = yield effect
        except GeneratorExit:
            collective.close()
            raise
