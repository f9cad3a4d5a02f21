"""What can be asked for, and the words for what cannot."""

import re

import pytest

from spardl.allreduce import ALGORITHMS
from spardl.bench.contenders import Contender, choose, everything, parse
from spardl.bench.sizes import parse_size


def test_everything_is_all_algorithms_and_all_numbers_of_teams():
    chosen = everything(6)
    assert [c.teams for c in chosen if c.algorithm == "spardl"] == [1, 2, 3, 6]
    assert {c.algorithm for c in chosen} == set(ALGORITHMS)
    assert len(chosen) == len(ALGORITHMS) + 3
    assert [parse(str(c), 6) for c in chosen] == chosen


def test_named_ones_keep_their_order_and_come_once():
    names = ["oktopk", "spardl:2", "spardl", "spardl:1", "oktopk"]
    assert choose(names, 4) == [Contender("oktopk"), Contender("spardl", 2), Contender("spardl")]
    assert choose(["gtopk", "all"], 3)[0] == Contender("gtopk")
    assert len(choose(["gtopk", "all"], 3)) == len(everything(3))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("magic", "expected one of spardl, dense_ring, .*, spardl:TEAMS or all, got 'magic'"),
        ("spardl:4", r"expected teams that divide 6 ranks, i.e. one of \[1, 2, 3, 6\], got 'spardl:4'"),
        ("spardl:", "got 'spardl:'"),
        ("spardl:-1", "got 'spardl:-1'"),
        ("spardl:0", "got 'spardl:0'"),
        ("gtopk:2", "gtopk has no teams, got 'gtopk:2'"),
    ],
)
def test_wrong_names(name, words):
    with pytest.raises(ValueError, match=words):
        parse(name, 6)


@pytest.mark.parametrize(
    ("algorithm", "most"),
    [("spardl", 10), ("gtopk", 10), ("oktopk", 15), ("topk_a", 40), ("topk_dsa", 40), ("dense_ring", 100)],
)
def test_how_many_entries_a_result_may_have(algorithm, most):
    assert Contender(algorithm).most_entries(ranks=4, size=100, k=10) == most
    assert Contender(algorithm).most_entries(ranks=4, size=5, k=10) == 5


def test_sizes():
    assert [parse_size(text) for text in ("vgg16", "resnet20", "12")] == [14_728_266, 269_722, 12]
    for text in ("0", "-3", "1e6", "vgg", ""):
        with pytest.raises(ValueError, match=re.escape(f"or one of vgg16, resnet20, got {text!r}")):
            parse_size(text)
