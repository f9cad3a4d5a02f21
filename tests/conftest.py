import os

import pytest
from hypothesis import HealthCheck, settings

# CI tries the same examples every time, so that a change fails for its own sake; elsewhere every run tries new ones.
settings.register_profile(
    "spardl",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize="CI" in os.environ,
)
settings.load_profile("spardl")


@pytest.fixture(scope="session", params=["native", "numba", "numpy"])
def backend_name(request):
    return request.param
