import pytest

import spardl.torch as spt


@pytest.fixture(autouse=True)
def _own_handles():
    """Handles left by one test would forbid the next to distribute the same parameters, were ids reused."""
    yield
    for handle in list(spt.handle.live_handles):
        handle.remove()
