"""When messages arrive, worked out by hand. Ports take 10 ns per byte, latency is 100 ns."""

import pytest

from spardl.runtime.network import Network, Passage, Port, Ports, cluster

PORT = Port(0, 10.0)


def network(ranks, **options):
    return Network(tuple(range(ranks)), (PORT,) * ranks, 100, **options)


def arrivals(of, *messages):
    """Of messages (sender, to, bytes, time), handed in in the order of their times."""
    ports = Ports(of)
    left = [ports.leave(*message) for message in messages]
    ends = {}
    for passage in sorted(left, key=lambda passage: passage.first):
        ends[id(passage)] = ports.arrive(passage)[1]
    return [ends[id(passage)] for passage in left]


def test_a_message_alone_takes_latency_and_its_bytes_once():
    assert arrivals(network(2), (0, 1, 50, 7)) == [7 + 100 + 500]


def test_incast_onto_one_rank():
    """Three messages at once share the receiver's port; a later one waits for what is left of them."""
    assert arrivals(network(5), (0, 4, 50, 0), (1, 4, 50, 0), (2, 4, 20, 0), (3, 4, 10, 1250)) == [
        600,
        1100,
        1300,
        1450,
    ]


def test_fan_out_from_one_rank():
    assert arrivals(network(4), (0, 1, 50, 0), (0, 2, 50, 0), (0, 3, 20, 300)) == [600, 1100, 1300]


def test_two_messages_from_one_rank_to_another():
    assert arrivals(network(2), (0, 1, 50, 0), (0, 1, 1, 0)) == [600, 610]


def test_a_port_works_in_both_directions_at_once():
    assert arrivals(network(2), (0, 1, 50, 0), (1, 0, 50, 0)) == [600, 600]


def test_who_comes_first_is_served_first():
    """Rank 0's message was handed in first, but rank 1 is near: its first byte is there before."""
    near = network(3, latencies={(1, 2): 10})
    assert arrivals(near, (0, 2, 50, 0), (1, 2, 50, 20)) == [530 + 500, 530]


def test_between_a_fast_and_a_slow_host_the_slow_one_counts():
    uneven = Network((0, 1, 2), (PORT, Port(0, 1.0), PORT), 100)
    assert arrivals(uneven, (0, 1, 50, 0)) == [600]
    assert arrivals(uneven, (1, 0, 50, 0)) == [600]
    # While a slow one trickles in, a fast port is free for another, and two slow ones do not disturb each other.
    assert arrivals(uneven, (0, 1, 50, 0), (2, 1, 50, 0)) == [600, 600]


def test_every_message_costs_an_overhead_at_both_ends():
    dear = Network((0, 1, 2), (Port(30, 10.0),) * 3, 100)
    assert arrivals(dear, (0, 1, 50, 0)) == [630]
    assert arrivals(dear, (0, 1, 0, 0), (0, 2, 0, 0)) == [130, 160]
    assert arrivals(dear, (0, 2, 0, 0), (1, 2, 0, 0)) == [130, 160]


def test_ranks_of_a_host_share_its_ports_but_not_those_among_themselves():
    two_hosts = Network((0, 0, 1, 1), (PORT, PORT), 100, memory=Port(0, 1.0), memory_latency=5)
    assert arrivals(two_hosts, (0, 2, 50, 0), (1, 3, 50, 0)) == [600, 1100]
    assert arrivals(two_hosts, (0, 1, 50, 0), (1, 0, 50, 0), (0, 2, 50, 0)) == [55, 55, 600]
    assert arrivals(two_hosts, (0, 1, 50, 0), (0, 1, 50, 0)) == [55, 105]


def test_a_message_costs_less_while_others_are_silent():
    """Alone 100 ns, with all four at once 400: with two of them a third of the way."""
    shared = Network((0, 1, 2, 3), (Port(400),) * 4, alone=Port(100))
    ports = Ports(shared)
    first = ports.leave(0, 1, 0, 0)
    second = ports.leave(0, 1, 0, 0)  # still one port that sends
    third = ports.leave(2, 3, 0, 0)
    assert [passage.busy for passage in (first, second, third)] == [100, 100, 200]
    for passage in (first, second, third):
        ports.leave_behind(passage)
    assert ports.leave(3, 0, 0, 1000).busy == 100
    assert [ports.leave(sender, 0, 0, 1000).busy for sender in (1, 2)] == [200, 300]


def test_the_library_takes_what_was_measured_or_the_best_there_can_be():
    assert network(4).allreduce(1000, 4) == 4 * 100 + 1500 * 10
    assert network(4, library=Port(7, 2.0)).allreduce(1000, 4) == 2007
    assert network(1).allreduce(1000, 1) == 0


def test_a_cluster_from_text():
    assert cluster(3) == Network((0, 1, 2), (Port(0, 8.0),) * 3, 50_000, memory=Port(0, 0.2), memory_latency=1000)
    uneven = cluster(5, ["1gbit", "100mbit", "2.5gbit"], "1ms", overhead="2us", ranks_per_host=2)
    assert uneven.hosts == (0, 0, 1, 1, 2)
    assert uneven.ports == (Port(2000, 8.0), Port(2000, 80.0), Port(2000, 3.2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": "fast"}, "expected a rate > 0 in kbit, mbit, gbit, as in 1gbit, got 'fast'"),
        ({"rate": "0gbit"}, "expected a rate > 0"),
        ({"rate": ["1gbit"]}, "expected a rate for all 4 hosts, or one for each, got 1"),
        ({"latency": "5"}, "expected a unit after the time"),
        ({"latency": "-5us"}, "expected times >= 0"),
        ({"ranks_per_host": 0}, "expected at least one rank, and one per host, got 4 and 0"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        cluster(4, **arguments)


def test_hosts_that_there_are_not():
    with pytest.raises(ValueError, match="expected hosts from 0 to 1, got 2"):
        Network((0, 2), (PORT, PORT))


def test_what_leaves_says_when_it_arrives():
    assert Ports(network(2)).leave(0, 1, 50, 7) == Passage(7, 107, 607, 0, 1, 500)
