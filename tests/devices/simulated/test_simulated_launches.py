"""What a reduce asks of a GPU depends on its rounds, not on how many blocks go into a message."""

import numpy as np
import pytest
from configurations import Setup
from devices.simulated.test_simulated_law import placed

from spardl.kernels.cuda.jit import MOST_DIGIT_BITS
from spardl.kernels.cuda.simulated import SimulatedNamespace

# A rank accumulates twice, settles twice, and in every round selects, packs, unpacks and receives. It selects and packs
# once more at the end, and unpacks what it has gathered. The first round receives into blocks that have nothing yet.
ACCUMULATE, SELECT, PACK, UNPACK, RECEIVE, SETTLE = 2, 10, 3, 4, 2, 1
SELECT_WAITS, PACK_WAITS, UNPACK_WAITS, RECEIVE_WAITS = 1, 3, 1, 1


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (4, 2), (8, 3)])
def test_launches_and_waits_go_with_rounds(ranks, rounds, monkeypatch):
    monkeypatch.setattr(SimulatedNamespace.__init__, "__defaults__", (4, MOST_DIGIT_BITS, 0))
    setup = placed(Setup(ranks, 1, "r", 50 * ranks, 4 * ranks, "float32", "packed", 1, None))
    reducers = setup.reducers(["cuda"])
    grads = setup.float_gradients(np.random.default_rng(4))
    on_device = [r._kernels.arrays.from_host(grad) for r, grad in zip(reducers, grads, strict=True)]
    for _ in range(2):  # the first has no thresholds to go by
        for reducer in reducers:
            reducer._kernels.arrays._on.calls.clear()
        Setup.reduce(setup, reducers, on_device)
    calls = [r._kernels.arrays._on.calls for r in reducers]
    messages = rounds + 1
    most = 2 * (ACCUMULATE + SETTLE) + messages * (SELECT + PACK + UNPACK) + rounds * RECEIVE
    assert max(of["launches"] for of in calls) <= most <= {2: 42, 4: 61, 8: 80}[ranks]
    waits = 2 + messages * (SELECT_WAITS + PACK_WAITS + UNPACK_WAITS) + (rounds - 1) * RECEIVE_WAITS
    assert max(of["waits"] for of in calls) <= waits <= {2: 12, 4: 18, 8: 24}[ranks]
