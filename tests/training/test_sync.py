"""The objects that say how to synchronise."""

import dataclasses

import pytest

import spardl.torch as spt


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"density": 0}, "density to be a number above 0 and at most 1, got 0"),
        ({"density": 1.5}, "density to be a number above 0 and at most 1, got 1.5"),
        ({"density": "1%"}, "density .* got '1%'"),
        ({"density": 0.1, "teams": 0}, "teams to be a number >= 1 or 'auto', got 0"),
        ({"density": 0.1, "residual": "none"}, "residual to be one of .*, got 'none'"),
        ({"density": 0.1, "sag": "x"}, "sag to be one of"),
        ({"density": 0.1, "wire": "zip"}, "wire to be one of"),
        ({"density": 0.1, "wire_dtype": "int8"}, "wire_dtype to be one of"),
        ({"density": 0.1, "momentum": 1.0}, "momentum to be at least 0 and below 1"),
        ({"density": 0.1, "nesterov": True}, "momentum to be above 0 for nesterov"),
        ({"density": 0.1, "local_clip": 0}, "local_clip to be a norm above 0"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=f"SparDL: expected {words}"):
        spt.SparDL(**arguments)


def test_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        spt.SparDL(density=0.1).density = 0.2


def test_warmup_is_that_of_deep_gradient_compression():
    warmup = spt.Warmup(0.001, steps=400)
    assert [round(warmup(step), 4) for step in (0, 99, 100, 200, 300, 399, 400, 10**9)] == [
        *(0.25, 0.25, 0.0629, 0.0158, 0.004, 0.004, 0.001, 0.001)
    ]
    assert spt.Warmup(0.01, steps=0)(0) == 0.01


@pytest.mark.parametrize("arguments", [{"density": 0}, {"steps": -1}, {"start": 0}, {"stages": 0}])
def test_wrong_warmup(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"Warmup: expected {name} to be"):
        spt.Warmup(**{"density": 0.01, "steps": 10} | arguments)


def test_density_may_be_any_function_of_the_step():
    sync = spt.SparDL(density=lambda step: 1 / (step + 1))
    assert sync.density_at(3) == 0.25
    with pytest.raises(ValueError, match=r"at most 1, got 2"):
        spt.SparDL(density=lambda step: 2).density_at(0)
