"""Spar-Reduce-Scatter: after ⌈log₂p⌉ rounds each rank of a team holds the team's sum of one block, sparsified.

A block is sparsified only when it is about to be sent, so that nothing is dropped that a later addition might save.
"""

from spardl import schedule, wire
from spardl.collectives.party import Party
from spardl.effects import Bytes, Collective, Exchange
from spardl.kernels.api import Pair


def spar_reduce_scatter(party: Party) -> Collective[Pair]:
    """Returns the entries kept of the own block."""
    team, position = party.layout.team_of(party.rank), party.position
    for number, r in enumerate(schedule.spar_reduce_scatter(len(team), position)):
        message = wire.join([_hand_on(party, block) for block in r.sends])
        source = team[r.source]
        arrived = yield Exchange(team[r.to], message, source, f"Spar-Reduce-Scatter round {number}")
        for block, frame in zip(r.receives, wire.split(arrived, len(r.receives)), strict=True):
            party.selector.receive(block, *party.read(frame, source))
    indices, values = party.selector.select(position)
    party.ledger.sent(position, indices, None)
    return indices, values


def _hand_on(party: Party, block: int) -> Bytes:
    indices, values = party.selector.select(block)
    rounded, error = party.codec.round(values)
    party.ledger.sent(block, indices, error)
    return party.frame(block, (indices, rounded))
