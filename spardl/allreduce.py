"""SparseAllreduce: the façade of the sparse core. Arguments are checked here; inside, code trusts them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spardl import kernels, saved, schedule, timeline
from spardl.agreement import check_together, open_channel, prepare_sums
from spardl.collectives.reducer import Reducer
from spardl.collectives.rivals import DENSE, RIVALS
from spardl.collectives.spardl import SparDL, choose_sag
from spardl.cost.model import Prediction
from spardl.cost.plan import AUTO, ProfileLike, Question, plan
from spardl.effects import Collective
from spardl.kernels import memory
from spardl.kernels.api import Kernels
from spardl.residual import POLICIES
from spardl.runtime import gpu_memory
from spardl.runtime.group import CommLike, resolve
from spardl.runtime.limit import time_limit
from spardl.runtime.mpi import Task
from spardl.runtime.traffic import Traffic
from spardl.sparse import VALUE_DTYPES, SparseVector
from spardl.timeline.traced import traced_kernels
from spardl.wire import INDEX_CODINGS, VALUE_CODINGS, Codec

ALGORITHMS = ("spardl", *RIVALS)
SAGS = ("auto", "r", "b")


@dataclass(frozen=True, slots=True)
class Config:
    """What all ranks must agree on."""

    size: int
    k: int
    algorithm: str
    teams: int | str
    sag: str
    residual: str
    wire: str
    wire_dtype: str


class Loaded(NamedTuple):
    """A state that has been checked, and what it was loaded into."""

    config: Config
    reducer: Reducer | None  # before the first reduce there is none

    def in_common(self) -> dict[str, Any]:
        """What all ranks must have loaded alike, by name."""
        if self.reducer is None:
            return {"config": asdict(self.config), "dtype": None}
        return {"config": asdict(self.config), "dtype": str(self.reducer.dtype), **self.reducer.in_common()}


class SparseAllreduce:
    """Sums gradients over ranks, moving only the largest entries; what is not moved is kept and added next time.

    Parameters
    ----------
    comm: an mpi4py communicator, or ``(communicator, ranks)`` for some of its ranks. All of them build this together.
    size: number of elements of the gradient.
    k, density: how many entries the result keeps, as a number or as a fraction of ``size``; exactly one of the two.
    algorithm: ``"spardl"``, or one to compare with; all work for any number of ranks, and lose nothing.
        ``"dense_ring"``, ``"dense_rabenseifner"``, ``"dense_recursive_doubling"``, ``"dense_mpi"`` (the library's own)
        sum everything, whatever k is, and return every index.
        ``"topk_a"`` and ``"topk_dsa"`` (SparCML) sum the k largest entries of every rank: up to kP in the result.
        ``"gtopk"`` keeps k; ``"oktopk"`` k at first, then about as many, at most 3k/2.
        ``"auto"`` takes what is predicted to be fastest of SparDL and the dense ones; ``plan`` holds the predictions.
    teams: number of teams (d); must divide the number of ranks. More teams: fewer rounds, more bytes. Or ``"auto"``.
    sag: how teams exchange: ``"r"`` (powers of two), ``"b"`` (any number), ``"auto"``.
    residual: ``"global"`` loses nothing; the others do, by design, for comparison. ``"partial"`` forgets what this rank
        sent at indices of the result, so what is dropped there on the way is lost; ``"local"`` forgets all it sent.
    backend: kernels: ``"native"``, ``"numba"``, ``"numpy"``; ``"cuda"`` for gradients on a GPU, with SparDL alone;
        ``"auto"`` (or ``SPARDL_BACKEND``) goes by where the first gradient is. Ranks may differ.
    wire: indices as ``"raw"`` or ``"packed"``, or what is smaller (``"auto"``).
    wire_dtype: values as they are (``"same"``), or ``"bf16"``/``"fp16"``; the rounding error stays in the residual.
    profile: what ``"auto"`` goes by, of rank 0: a profile or file of ``spardl cost measure``, or the file that
        ``SPARDL_PROFILE`` names; else messages are timed for some seconds, once per communicator.
    timeout: seconds to wait for a peer before giving up; ``SPARDL_TIMEOUT`` or 300 by default.
    warn_after: seconds of waiting after which rank 0 prints who is missing, 0 for never; ``SPARDL_STALL_WARNING`` or 30
        by default.
    """

    def __init__(
        self,
        comm: CommLike,
        size: int,
        *,
        k: int | None = None,
        density: float | None = None,
        algorithm: str = "spardl",
        teams: int | str = 1,
        sag: str = "auto",
        residual: str = "global",
        backend: str = "auto",
        wire: str = "auto",
        wire_dtype: str = "same",
        profile: ProfileLike = None,
        timeout: float | None = None,
        warn_after: float | None = None,
    ) -> None:
        self._timeout = time_limit(timeout)
        self._group = resolve(comm, self._timeout)
        self._kernels: Kernels
        self._follows_gradient = kernels.resolve(backend) in (AUTO, kernels.CUDA)  # until the first one is there

        def config() -> dict[str, Any]:
            self._direct = gpu_memory.send_directly()
            self._kernels = traced_kernels(timeline.current(), kernels.load(backend, direct=self._direct))
            if self._kernels.name == kernels.CUDA and algorithm != "spardl":
                raise ValueError(
                    f"SparseAllreduce: backend='cuda' knows algorithm='spardl' only, got {algorithm!r}; "
                    "use backend='auto' and gradients on the host"
                )
            if algorithm == "dense_mpi" and isinstance(comm, tuple):
                raise ValueError(
                    "SparseAllreduce: algorithm='dense_mpi' needs a whole communicator, got a list of ranks"
                )
            self._config = _checked_config(
                self._group.size, size, k, density, algorithm, teams, sag, residual, wire, wire_dtype
            )
            return asdict(self._config)

        self._channel = open_channel(self._group, config, self._timeout, "SparseAllreduce", warn_after)
        if algorithm == "dense_mpi" or (algorithm == AUTO and not isinstance(comm, tuple)):
            prepare_sums(self._channel, self._timeout)
        self.plan: list[Prediction] = []
        if AUTO in (algorithm, teams):
            self._make_plan(comm, profile)
        self._reducer: Reducer | None = None
        self.traffic = Traffic()

    def _make_plan(self, comm: CommLike, profile: ProfileLike) -> None:
        asked = {name: value for name, value in asdict(self._config).items() if name != "residual"}
        self.plan = plan(comm, self._group, Question(**asked), profile, self._timeout)
        best = self.plan[0]
        self._config = replace(self._config, algorithm=best.algorithm, teams=best.teams, sag=best.sag)

    # -- what it does --------------------------------------------------------------------------------------------------

    def reduce(self, grad: Any) -> SparseVector:
        """The sum over ranks, bit-identical on every rank: its k largest entries, roughly; the rest becomes residual.

        ``grad`` is a contiguous 1-D float32 or float64 array of ``size`` elements; it is not modified. It may be on a
        GPU (CuPy, or anything that speaks DLPack); the result's arrays are then CuPy's. If this raises, on whatever
        rank and for whatever reason, it raises on all, and nothing has changed.
        """
        return self.start(grad).wait()

    def start(self, grad: Any, *, stream: int | None = None) -> Task[SparseVector]:
        """Begins a reduce; ``advance()`` the task between other work and ``wait()`` for its result.

        On a GPU all happens on ``stream``, a pointer to the CUDA stream that the gradient is written on, by default the
        one that is current for CuPy. The result is complete for work that is put on that stream.
        """
        task = Task(self._channel, self._reduce(grad, stream), self._timeout, "SparseAllreduce.reduce")
        self.traffic = task.traffic
        return task

    def _reduce(self, grad: Any, stream: int | None) -> Collective[SparseVector]:
        if self._follows_gradient:
            self._follow(grad)
        self._channel.messages = self._kernels.arrays.messages
        grad = self._kernels.arrays.adopt(grad, "reduce", "grad", stream)
        _check_gradient(grad, self._config.size, None if self._reducer is None else self._reducer.dtype)
        reducer = self._reducer or self._build(grad.dtype)
        result = yield from reducer.reduce(grad)
        self._reducer = reducer
        self._follows_gradient = False
        return result

    def _follow(self, grad: Any) -> None:
        """The first gradient decides which device is used, and with ``"auto"`` whether one is."""
        device = kernels.cuda_device_of(grad)
        if device is None or self._config.algorithm != "spardl":
            return
        self._kernels = traced_kernels(timeline.current(), kernels.open_cuda(device, direct=self._direct))
        if self._reducer is not None:  # was given a residual or a checkpoint, and may be elsewhere
            state, self._reducer = self._reducer.state_dict(), self._build(self._reducer.dtype)
            self._reducer.load_state_dict(state)

    def write_mean(self, result: SparseVector, out: Any, scale: float = 1.0, *, stream: int | None = None) -> None:
        """Makes ``out``, a vector where the gradients are, the mean over ranks that ``result`` is the sum of.

        Times ``scale``. With the same bits on CPUs and GPUs, whose libraries do not all divide alike.
        """
        arrays = self._kernels.arrays
        dense = arrays.adopt(out, "write_mean", "out", stream)
        arrays.write_mean(dense, result.indices, result.values, self._group.size, scale)

    def fail(self, error: Exception) -> None:
        """In place of a reduce: this rank cannot take part, so all ranks raise ``error``."""
        Task(self._channel, self._reduce(np.empty(0), None), self._timeout).abort(error)

    def undo(self) -> None:
        """Takes the last reduce back: residual, thresholds and SAG state are what they were before it.

        For callers whose step consists of several reduces, of which another failed. All ranks have to do it.
        """
        if self._reducer is not None:
            self._reducer.undo()

    def retune(self, *, k: int | None = None, density: float | None = None) -> None:
        """Keeps another number of entries from the next reduce on. All ranks have to do it alike; nothing is lost."""
        new_k = _checked_k(self._config.size, k, density)
        if new_k != self._config.k:
            self._config = replace(self._config, k=new_k)
            if self._reducer is not None:
                self._reducer.rebudget(new_k)

    def start_from(self, residual: npt.NDArray[Any]) -> None:
        """Forgets everything and owes ``residual``: for results of another system, layout or number of ranks."""
        memory.HOST.adopt(residual, "start_from", "residual", None)
        _check_gradient(residual, self._config.size, None, "start_from", "residual")
        saved.finite(residual, "the residual")
        self._reducer = self._build(residual.dtype)
        self._reducer.owe(residual)

    @property
    def algorithm(self) -> str:
        """What reduces; a choice if it was to be ``"auto"``."""
        return self._config.algorithm

    @property
    def is_dense(self) -> bool:
        """Whether all of every gradient is reduced at once."""
        return self._config.algorithm in DENSE

    @property
    def teams(self) -> int:
        return int(self._config.teams)

    @property
    def k(self) -> int:
        """How many entries the result may have."""
        return self._config.k

    @property
    def residual(self) -> npt.NDArray[Any]:
        """What this rank still owes: gradients handed in that no result has contained yet. A read-only view."""
        owed = np.zeros(self._config.size, np.float32) if self._reducer is None else self._reducer.residual
        view = owed.view()
        view.flags.writeable = False
        return view

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly, on this rank; arrays are copies. Save one per rank."""
        state: dict[str, Any] = {"config": asdict(self._config), "ranks": self._group.size, "rank": self._group.me}
        if self._reducer is not None:
            state |= {"dtype": str(self._reducer.dtype), **self._reducer.state_dict()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from where ``state_dict`` was taken, in an object built alike; bit for bit. All ranks do it together.

        If the state of one rank is damaged or of something else, all ranks raise ValueError, and nothing has changed.
        """
        loaded = check_together(
            self._group,
            lambda: self.prepare_load(state),
            self._timeout,
            "load_state_dict",
            Loaded.in_common,
        )
        self.finish_load(loaded)

    def prepare_load(self, state: Mapping[str, Any]) -> "Loaded":
        """Checks this rank's state, and changes nothing: for callers who make all ranks agree that theirs are sound."""
        config = self._config
        told = saved.mapping(saved.part(state, "config"), "config")
        if self.plan:  # what was chosen then is what goes on now
            chosen = {name: told.get(name) for name in ("algorithm", "teams", "sag")}
            if chosen in [{"algorithm": p.algorithm, "teams": p.teams, "sag": p.sag} for p in self.plan]:
                config = replace(config, **chosen)
        mine = {"config": asdict(config), "ranks": self._group.size, "rank": self._group.me}
        for name, expected in mine.items():
            if saved.part(state, name) != expected:
                raise ValueError(f"load_state_dict: expected {name} = {expected}, got {state[name]}")
        if state.keys() == mine.keys():  # taken before the first reduce
            return Loaded(config, None)
        dtype = saved.part(state, "dtype")
        if dtype not in [known.name for known in VALUE_DTYPES]:
            raise saved.unfit("dtype", "float32 or float64", dtype)
        reducer = self._build(np.dtype(dtype), config)
        saved.nothing_but([*mine, "dtype", *reducer.state_dict()], state, "the state")
        reducer.load_state_dict(state)
        return Loaded(config, reducer)

    def finish_load(self, loaded: "Loaded") -> None:
        """Goes on from what ``prepare_load`` has returned."""
        self._config, self._reducer = loaded

    # -- setting up ----------------------------------------------------------------------------------------------------

    def _build(self, dtype: np.dtype[Any], config: Config | None = None) -> Reducer:
        config, ranks = config or self._config, self._group.size
        codec = Codec(self._kernels, config.wire, config.wire_dtype)
        common: dict[str, Any] = {"rank": self._group.me, "dtype": dtype, "kernels": self._kernels, "codec": codec}
        if config.algorithm != "spardl":
            return RIVALS[config.algorithm](config.size, config.k, ranks=ranks, **common)
        layout = schedule.Teams(ranks, int(config.teams))
        return SparDL(config.size, config.k, layout=layout, sag=config.sag, residual=config.residual, **common)


def _checked_config(
    ranks: int,
    size: int,
    k: int | None,
    density: float | None,
    algorithm: str,
    teams: int | str,
    sag: str,
    residual: str,
    wire: str,
    wire_dtype: str,
) -> Config:
    _expect_integer("size", size)
    k = _checked_k(size, k, density)
    choices = {"algorithm": (*ALGORITHMS, AUTO), "sag": SAGS, "residual": POLICIES, "wire": INDEX_CODINGS}
    given = {"algorithm": algorithm, "sag": sag, "residual": residual, "wire": wire}
    for name, allowed in (choices | {"wire_dtype": VALUE_CODINGS}).items():
        value = (given | {"wire_dtype": wire_dtype})[name]
        if value not in allowed:
            raise ValueError(f"SparseAllreduce: expected {name} in {allowed}, got {value!r}")
    if algorithm in RIVALS:
        _check_rival(algorithm, teams, sag, residual, wire_dtype)
    if teams == AUTO:
        return Config(int(size), int(k), algorithm, AUTO, sag, residual, wire, wire_dtype)
    possible = schedule.team_counts(ranks)
    if isinstance(teams, bool) or not isinstance(teams, int | np.integer) or teams not in possible:
        raise ValueError(
            f"SparseAllreduce: expected teams to divide {ranks} ranks, i.e. one of {possible}, or 'auto', got {teams!r}"
        )
    if sag == "r" and not schedule.is_power_of_two(int(teams)):
        raise ValueError(f"SparseAllreduce: sag='r' needs a power of two of teams, got {teams}; use sag='b' or 'auto'")
    return Config(int(size), int(k), algorithm, int(teams), choose_sag(sag, int(teams)), residual, wire, wire_dtype)


def _check_rival(algorithm: str, teams: int | str, sag: str, residual: str, wire_dtype: str) -> None:
    if teams != 1 or sag != "auto":
        raise ValueError(f"SparseAllreduce: algorithm={algorithm!r} has no teams, got teams={teams!r} and sag={sag!r}")
    if residual != "global":
        raise ValueError(f"SparseAllreduce: algorithm={algorithm!r} loses nothing, got residual={residual!r}")
    if algorithm in DENSE and wire_dtype != "same":
        raise ValueError(f"SparseAllreduce: algorithm={algorithm!r} rounds nothing, got wire_dtype={wire_dtype!r}")


def _checked_k(size: int, k: int | None, density: float | None) -> int:
    if (k is None) == (density is None):
        raise ValueError(f"SparseAllreduce: expected exactly one of k and density, got k={k} and density={density}")
    if density is not None:
        if not 0 <= density <= 1:
            raise ValueError(f"SparseAllreduce: expected density between 0 and 1, got {density}")
        k = max(1, round(density * size)) if density > 0 and size > 0 else 0
    assert k is not None
    _expect_integer("k", k)
    return int(k)


def _expect_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"SparseAllreduce: expected {name} to be an integer, got {value!r}")
    if value < 0:
        raise ValueError(f"SparseAllreduce: expected {name} >= 0, got {value}")


def _check_gradient(
    grad: Any, size: int, dtype: np.dtype[Any] | None, call: str = "reduce", name: str = "grad"
) -> None:
    if grad.dtype not in VALUE_DTYPES:
        raise TypeError(f"{call}: expected {name} of dtype float32 or float64, got {grad.dtype}")
    if dtype is not None and grad.dtype != dtype:
        raise TypeError(f"{call}: expected {name} of dtype {dtype}, as in the first reduce, got {grad.dtype}")
    if grad.shape != (size,):
        raise ValueError(f"{call}: expected {name} of shape ({size},), got {grad.shape}")
    if size > 1 and grad.strides != (grad.itemsize,):
        raise ValueError(f"{call}: expected a contiguous {name}, got strides {grad.strides}; make it contiguous first")
