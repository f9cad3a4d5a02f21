"""Spar-Reduce-Scatter: after ⌈log₂p⌉ rounds each rank of a team holds the team's sum of one block, sparsified.

A block is sparsified only when it is about to be sent, so that nothing is dropped that a later addition might save. The
blocks that are sent first are also accumulated first, all others while those are on their way.
"""

from collections.abc import Sequence

from spardl import schedule, wire
from spardl.collectives.party import Party
from spardl.effects import Bytes, Collective, Recv, Send
from spardl.kernels.api import Pair, Values


def spar_reduce_scatter(party: Party, grad: Values, residual: Values, most: int) -> Collective[Pair]:
    """Returns the entries kept of the own block, at most so many."""
    team, position = party.layout.team_of(party.rank), party.position
    rounds = schedule.spar_reduce_scatter(len(team), position)
    at_once = rounds[0].sends if rounds else range(len(team))
    later = [block for block in range(len(team)) if block not in at_once]
    party.selector.accumulate_blocks(grad, residual, at_once)
    for number, r in enumerate(rounds):
        step = f"Spar-Reduce-Scatter round {number}"
        yield Send(team[r.to], wire.join(_hand_on(party, r.sends)), step)
        if number == 0:
            party.selector.accumulate_blocks(grad, residual, later)
        source = team[r.source]
        arrived = yield Recv(source, step)
        frames = wire.split(arrived, len(r.receives))
        party.selector.receive(r.receives, party.frames.read_all(frames, [source] * len(frames)))
    ((indices, values),) = party.selector.select([position], most)
    party.ledger.sent(position, indices, None)
    return indices, values


def _hand_on(party: Party, blocks: Sequence[int]) -> list[Bytes]:
    vectors = []
    for block, (indices, values) in zip(blocks, party.selector.select(blocks), strict=True):
        rounded, error = party.codec.round(values)
        party.ledger.sent(block, indices, error)
        vectors.append((indices, rounded))
    return party.frames_of(blocks, vectors)
