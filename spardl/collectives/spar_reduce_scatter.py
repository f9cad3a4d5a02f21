"""Spar-Reduce-Scatter: after ⌈log₂p⌉ rounds each rank of a team holds the team's sum of one block, sparsified.

A block is sparsified only when it is about to be sent, so that nothing is dropped that a later addition might save.
What no message is still to come for is sent at once, in whatever round: where p is not a power of two, more than one
message leaves before the first is waited for. Blocks are accumulated in the order in which they are sent, and those of
later messages while the first are on their way.
"""

from collections.abc import Sequence

from spardl import schedule
from spardl.collectives.party import Party
from spardl.effects import Collective, Recv, Send
from spardl.kernels.api import Pair, Values
from spardl.residual import Residual


def spar_reduce_scatter(party: Party, grad: Values, residual: Residual, most: int) -> Collective[Pair]:
    """Returns the entries kept of the own block, at most so many."""
    team, position, selector = party.layout.team_of(party.rank), party.position, party.selector
    rounds = schedule.spar_reduce_scatter(len(team), position)
    leave_before = schedule.leave_before(len(team), position)
    left = leave_before[0] if rounds else 0  # messages
    for number in range(left):
        selector.accumulate_blocks(grad, residual.dense, rounds[number].sends, residual.corrections)
        yield _hand_on(party, team, rounds, number)
    later = [block for r in rounds[left:] for block in r.sends]
    selector.accumulate_blocks(grad, residual.dense, [*later, position], residual.corrections)
    residual.corrections = None  # all of them have been written by now
    for number, (r, leave) in enumerate(zip(rounds, leave_before, strict=True)):
        for leaving in range(left, leave):
            yield _hand_on(party, team, rounds, leaving)
        left = leave
        source = team[r.source]
        arrived = yield Recv(source, _name(number))
        bounds = [party.bounds_of(block) for block in r.receives]
        selector.receive(r.receives, party.frames.read_message(arrived, source, bounds))
    ((indices, values),) = selector.select([position], most)
    party.ledger.sent(position, indices, None)
    return indices, values


def _hand_on(party: Party, team: Sequence[int], rounds: Sequence[schedule.Round], number: int) -> Send:
    """The message of that round."""
    to, blocks = team[rounds[number].to], rounds[number].sends
    vectors = []
    for block, (indices, values) in zip(blocks, party.selector.select(blocks), strict=True):
        rounded, error = party.codec.round(values)
        party.ledger.sent(block, indices, error)
        vectors.append((indices, rounded))
    return Send(to, party.message(blocks, vectors), _name(number))


def _name(number: int) -> str:
    return f"Spar-Reduce-Scatter round {number}"
