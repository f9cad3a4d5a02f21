"""Every kernel compiles for every architecture that we promise, without a device, and takes no more than it may."""

import pytest

from spardl.kernels.cuda import compiling


@pytest.mark.parametrize("architecture", compiling.ARCHITECTURES, ids=lambda cc: "sm_{}{}".format(*cc))
def test_kernels_compile_within_bounds(architecture):
    usages = list(compiling.compile_all([architecture]))
    assert {usage.kernel for usage in usages} == set(compiling.KERNELS)
    for usage in usages:
        assert usage.local == 0, f"{usage}: registers spilled, or arrays on the stack"
        assert usage.registers <= 40, usage
        assert usage.shared <= 8192, usage
        assert compiling.blocks_per_processor(usage) >= 6, f"{usage}: too few threads to hide the memory's latency"


@pytest.mark.parametrize("value", [pair[0] for pair in compiling.TYPES], ids=str)
def test_no_kernel_rounds_differently_from_the_cpu(value):
    """No fused multiply-add, nothing flushed to zero, no approximate division: each would change bits."""
    index = dict(compiling.TYPES)[value]
    for name, (function, letters) in compiling.KERNELS.items():
        ptx = compiling.to_ptx(function, letters, value, index, (8, 0))
        for instruction in ("fma.", ".ftz", ".approx", "atom.global.add.f", "red.global.add.f"):
            assert instruction not in ptx, f"{name} has {instruction}"
