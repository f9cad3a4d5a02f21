"""R-SAG: recursive doubling between the teams, for a power of two of them, with a top-k after every addition."""

from spardl import schedule
from spardl.collectives.party import Party
from spardl.effects import Collective, Exchange
from spardl.kernels.api import Pair


def r_sag(party: Party, held: Pair) -> Collective[Pair]:
    """Returns the entries kept of the sum over all teams; the same on all ranks of equal position."""
    peers = party.layout.peers_of(party.rank)
    for t, r in enumerate(schedule.r_sag(len(peers), party.team, party.position)):
        holders = 1 << t  # ranks that hold the same sum before this round; twice as many after it
        held = party.as_on_the_wire(held, holders)
        source = peers[r.source]
        message = party.message([party.position], [held])
        arrived = yield Exchange(peers[r.to], message, source, f"R-SAG round {t}")
        (theirs,) = party.frames.read_message(arrived, source, [party.bounds_of(party.position)])
        held = party.keep_largest(party.kernels.add(*held, *theirs), 2 * holders)
    return held
