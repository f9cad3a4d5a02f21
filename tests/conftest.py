import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("spardl", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("spardl")


@pytest.fixture(scope="session", params=["native", "numba", "numpy"])
def backend_name(request):
    return request.param
