"""What PartialReduce refuses to be, and what it makes of what it is given."""

import dataclasses
import math
import re

import pytest

import spardl.torch as spt
from spardl.protocols.preduce.weights import Constant, Dynamic
from spardl.torch.sync import require_fitting

RANKS = 'group to be a number of at least 2 ranks, or "auto"'
SHARE = "alpha to be a number above 0 and at most 1"
SPARSE = spt.SparDL(density=0.1)


def refused(words, **arguments):
    """A case: arguments, of which the last is at fault, and the words of the error."""
    *_, wrong = arguments.values()
    words = f"PartialReduce: expected {words}, got {wrong!r}"
    return pytest.param(arguments, words, id=f"{list(arguments)[-1]}={wrong!r}")


WRONG = [
    *(refused(RANKS, group=group) for group in (1, 0, -3, True, False, 2.5, 2.0, math.nan, None, "all", "4", [0, 1])),
    *(refused(SHARE, alpha=alpha) for alpha in (0, -1, 1.5, math.nan, math.inf, True, "0.5", None, [0.5])),
    refused("weights to be one of ('constant', 'dynamic')", weights="linear"),
    refused("weights to be one of ('constant', 'dynamic')", weights=None),
    refused("weights to be one of ('constant', 'dynamic')", weights=["constant"]),
    refused("fill to be one of ('newest', 'nearest', 'stalest', None)", fill="x"),
    refused("fill to be one of ('newest', 'nearest', 'stalest', None)", fill=0),
    refused("fill to be None where weights are constant", weights="constant", fill="newest"),
    *(
        refused(f"{name} to be at least 1, or None", **{name: value})
        for name in ("window", "global_every")
        for value in (0, -1, 2.5, True, math.nan, "10")
    ),
    refused("optimizer_state to be one of ('local', 'average', 'adopt')", optimizer_state="x"),
    refused("optimizer_state to be one of ('local', 'average', 'adopt')", optimizer_state=None),
    *(
        refused('optimizer_state to be "local" where reduce is sparse', reduce=SPARSE, optimizer_state=state)
        for state in ("average", "adopt")
    ),
    refused("reduce to be SparDL(…) or Dense()", reduce="dense"),
    refused("reduce to be SparDL(…) or Dense()", reduce=spt.Dense),
    refused("reduce to be SparDL(…) or Dense()", reduce=spt.RNA()),
    refused("reduce to be without teams, which PartialReduce does not know", reduce=spt.SparDL(density=0.1, teams=2)),
    refused(
        "reduce to be without residual, momentum, which PartialReduce does not know",
        reduce=spt.SparDL(density=0.1, residual="local", momentum=0.9),
    ),
    *(refused("patience to be above 0", patience=seconds) for seconds in (0, -1.0, math.nan, True, None, "1")),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        spt.PartialReduce(**arguments)


@pytest.mark.parametrize("density", [lambda step: 0.1, spt.Warmup(0.1, steps=5)], ids=["function", "warm-up"])
def test_a_density_that_changes_is_refused(density):
    with pytest.raises(ValueError, match="PartialReduce: expected density to be a number, got "):
        spt.PartialReduce(reduce=spt.SparDL(density=density))


@pytest.mark.parametrize(
    "arguments",
    [
        {"group": 2},
        {"group": "auto"},
        {"alpha": 1},
        {"alpha": 1e-9},
        {"weights": "dynamic", "fill": "stalest"},
        {"weights": "constant", "alpha": 0.9},
        {"window": 1, "global_every": 1},
        {"optimizer_state": "adopt"},
        {"reduce": spt.SparDL(density=0.1, wire="packed", wire_dtype="fp16", backend="numpy")},
        {"patience": 1},
    ],
)
def test_what_is_fine(arguments):
    sync = spt.PartialReduce(**arguments)
    assert {name: getattr(sync, name) for name in arguments} == arguments


def test_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        spt.PartialReduce().group = 2


def test_a_group_has_no_more_ranks_than_there_are():
    words = "PartialReduce: expected group to be at most 3, which is all ranks there are, got 4"
    with pytest.raises(ValueError, match=words):
        require_fitting(spt.PartialReduce(group=4), 3)
    for group, ranks in ((4, 4), (2, 3), ("auto", 2), (4, 1), ("auto", 1)):
        require_fitting(spt.PartialReduce(group=group), ranks)


def test_settings_for_the_protocol():
    settings = spt.PartialReduce(group=3, alpha=0.25, fill="nearest", window=9, patience=2.5).settings()
    assert settings.weights == Dynamic(0.25, "nearest")
    assert (settings.group, settings.window, settings.global_every, settings.patience) == (3, 9, None, 2.5)
    assert settings.filtered
    assert spt.PartialReduce(weights="constant").settings().weights == Constant()


def test_everyone_is_averaged_now_and_then_where_differences_are_sent():
    """So that the old average that they are differences from is not too old."""
    assert spt.PartialReduce(reduce=SPARSE).settings().global_every == 50
    assert spt.PartialReduce(reduce=SPARSE, global_every=7).settings().global_every == 7
    assert spt.PartialReduce(global_every=7).settings().global_every == 7
    assert spt.PartialReduce().settings().global_every is None
