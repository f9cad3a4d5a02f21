"""What the simulator cannot tell: the same properties on a real GPU, at real sizes, with CuPy's and torch's arrays."""

import numpy as np
import pytest
from configurations import Setup, bits
from devices.on_device import OnDevice
from kernels.test_kernels import (  # noqa: F401
    test_accumulate,
    test_accumulate_large_blocks,
    test_accumulate_reports_the_first_non_finite_sum,
    test_add,
    test_add_keeps_zero_sums_and_lone_negative_zeros,
    test_add_many,
    test_merges_of_large_vectors,
    test_overlay,
    test_pack_and_unpack,
    test_scatter_add,
    test_select,
    test_select_and_split_large_vectors,
    test_select_rounds_the_floor_to_the_values_type,
    test_split,
    test_ties_go_to_the_lower_index_and_zeros_are_left,
    test_topk_dense,
    test_topk_dense_large_blocks,
    test_unpack_refuses_a_stream_that_ends_early,
    test_writes_where_wanted,
    types,
)
from kernels.test_many_blocks import (  # noqa: F401
    test_accumulate_some,
    test_blocks_of_every_kind_of_values,
    test_overlay_many,
    test_overwrite_where_many,
    test_pack_and_unpack_many,
    test_select_many,
    test_topk_dense_many,
    test_unpack_many_refuses_any_stream_that_ends_early,
)
from mpi4py import MPI

from spardl import SparseAllreduce, SparseVector, kernels

pytestmark = pytest.mark.gpu


def _why_not():
    try:
        kernels.open_cuda(0)
    except ValueError as error:
        return str(error)
    return None


@pytest.fixture(scope="module", autouse=True)
def device():
    reason = _why_not()
    if reason is not None:
        pytest.skip(f"no GPU to test on: {reason}")


@pytest.fixture(scope="module")
def backend(device):
    from spardl.kernels.cuda.with_cupy import CupyNamespace

    return OnDevice(CupyNamespace(0))


N, K = 1_000_003, 10_000


def gradients(count):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(N).astype(np.float32) for _ in range(count)]


def build(backend):
    return SparseAllreduce(MPI.COMM_SELF, N, k=K, backend=backend)


def test_cupy_arrays_reduce_to_a_cpu_s_bits():
    import cupy

    ours, theirs = build("auto"), build("numpy")
    for grad in gradients(3):
        with cupy.cuda.Stream(non_blocking=True):
            result = ours.reduce(cupy.asarray(grad))
            values = result.values.get()
        expected = theirs.reduce(grad)
        assert result.indices.get().tobytes() == expected.indices.tobytes()
        assert values.tobytes() == expected.values.tobytes()
        assert ours.residual.tobytes() == theirs.residual.tobytes()


def test_messages_in_the_gpu_s_memory(monkeypatch):
    """Two ranks in this process, each with its own kernels; what an MPI would do with the messages is a copy."""
    setup = Setup(2, 1, "r", N, K, "float32", "auto", 0, None)
    direct = [kernels.open_cuda(0, direct=True) for _ in range(2)]
    monkeypatch.setattr(kernels, "load", lambda name: direct.pop() if name == "cuda" else kernels._load(name))
    ours, theirs = setup.reducers(["cuda"]), setup.reducers(["numpy"])
    for seed in range(2):
        grads = setup.float_gradients(np.random.default_rng(seed))
        on_device = [r._kernels.arrays.from_host(grad) for r, grad in zip(ours, grads, strict=True)]
        result = setup.reduce(ours, on_device)[0]
        there = SparseVector.trusted(*ours[0]._kernels.arrays.to_host(result.indices, result.values), N)
        assert bits(there) == bits(setup.reduce(theirs, grads)[0])


def test_only_selected_entries_come_to_the_host():
    import cupy

    reducer = build("cuda")
    on_device = [cupy.asarray(grad) for grad in gradients(3)]
    for grad in on_device[:2]:
        reducer.reduce(grad)
    calls = reducer._kernels.arrays._on.calls
    calls.clear()
    reducer.reduce(on_device[2])
    assert calls["bytes_to_host"] < 16 * K


def test_torch_tensors_come_without_a_copy_on_their_stream():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch is built without CUDA")
    ours, theirs = build("auto"), build("numpy")
    for grad in gradients(2):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            tensor = torch.from_numpy(grad).cuda()
            result = ours.start(tensor, stream=stream.cuda_stream).wait()
            ours.write_mean(result, tensor, stream=stream.cuda_stream)
            mean = tensor.cpu().numpy()
        expected = theirs.reduce(grad)
        assert mean.tobytes() == expected.to_dense().tobytes()


def test_arrays_elsewhere_are_refused():
    import cupy

    reducer = build("cuda")
    with pytest.raises(TypeError, match="expected grad on a CUDA device, got a ndarray"):
        reducer.reduce(gradients(1)[0])
    with pytest.raises(ValueError, match="expected a contiguous grad"):
        reducer.reduce(cupy.zeros(2 * N, np.float32)[::2])
