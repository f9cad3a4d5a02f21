"""Which parameters travel together."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spardl.torch.layout import DENSE, ROWS, SPARSE, BucketPlan, excluded_names, plan_buckets


def parameters(**sizes):
    return {name: torch.nn.Parameter(torch.zeros(size)) for name, size in sizes.items()}


def test_neighbours_in_the_given_order_up_to_the_capacity():
    named = parameters(a=10, b=20, c=30, d=1000, e=5)
    kinds = dict.fromkeys(named, SPARSE)
    plans = plan_buckets(["e", "d", "c", "b", "a"], named, kinds, capacity_bytes=4 * 50)
    assert [plan.names for plan in plans] == [("e",), ("d",), ("c", "b"), ("a",)]


def test_kinds_and_dtypes_apart_and_rows_alone():
    named = parameters(a=1, b=1, c=1, d=1, e=1) | {
        "half": torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16)),
        "double": torch.nn.Parameter(torch.zeros(1, dtype=torch.float64)),
    }
    kinds = dict.fromkeys(named, SPARSE) | {"b": DENSE, "c": ROWS, "d": ROWS}
    plans = plan_buckets(named, named, kinds, 1e9)
    assert set(plans) == {
        BucketPlan(SPARSE, ("a", "e", "half"), "float32"),
        BucketPlan(DENSE, ("b",), "float32"),
        BucketPlan(ROWS, ("c",), "float32"),
        BucketPlan(ROWS, ("d",), "float32"),
        BucketPlan(SPARSE, ("double",), "float64"),
    }


@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from([SPARSE, DENSE, ROWS]))), st.integers(1, 1000))
def test_every_parameter_once_and_no_bucket_over_the_capacity(wanted, capacity):
    named = parameters(**{f"p{i}": size for i, (size, _) in enumerate(wanted)})
    kinds = {f"p{i}": kind for i, (_, kind) in enumerate(wanted)}
    plans = plan_buckets(named, named, kinds, capacity)
    assert sorted(name for plan in plans for name in plan.names) == sorted(named)
    for plan in plans:
        assert {kinds[name] for name in plan.names} == {plan.kind}
        assert len(plan.names) == 1 or 4 * sum(named[name].numel() for name in plan.names) <= capacity


def test_exclude_by_pattern_and_predicate():
    named = {
        "conv.weight": torch.nn.Parameter(torch.zeros(2, 2)),
        "conv.bias": torch.nn.Parameter(torch.zeros(2)),
        "norm.weight": torch.nn.Parameter(torch.zeros(2)),
    }
    assert excluded_names(["*.bias", "norm.*"], named) == {"conv.bias", "norm.weight"}
    assert excluded_names(lambda name, p: p.ndim < 2, named) == {"conv.bias", "norm.weight"}
    assert excluded_names((), named) == set()
    with pytest.raises(ValueError, match=r"exclude='bias' matches no parameter .* conv.weight, conv.bias, norm.weight"):
        excluded_names(["bias"], named)
    with pytest.raises(TypeError, match="list of names or a predicate, got the string"):
        excluded_names("conv.bias", named)
