"""How gradients are synchronised: small immutable objects, one of which is given to ``distribute``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from spardl.allreduce import ALGORITHMS, SAGS, _checked_config
from spardl.cost.plan import AUTO, ProfileLike
from spardl.graphs import Graph, graph
from spardl.graphs.weights import RULES
from spardl.protocols.hop.settings import ORDERS, Skip
from spardl.protocols.hop.settings import Settings as HopSettings
from spardl.protocols.preduce.settings import Settings
from spardl.protocols.preduce.weights import FILLS, Constant, Dynamic
from spardl.protocols.rna.policies import Policy, PowerOfChoices
from spardl.residual import POLICIES
from spardl.wire import INDEX_CODINGS, VALUE_CODINGS

Density: TypeAlias = float | Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Warmup:
    """A density that falls from ``start`` to ``density`` in ``stages`` equal factors over the first ``steps`` steps.

    Early gradients are large and change quickly, so little should be held back. ``Warmup(0.001, steps=4 * epoch)``
    keeps 25 %, 6.3 %, 1.6 % and 0.4 % in the first four epochs, as Deep Gradient Compression does.
    """

    density: float
    steps: int
    start: float = 0.25
    stages: int = 4

    def __post_init__(self) -> None:
        _expect(0 < self.density <= 1, "Warmup", "density", "a number above 0 and at most 1", self.density)
        _expect(0 < self.start <= 1, "Warmup", "start", "a number above 0 and at most 1", self.start)
        _expect(self.steps >= 0, "Warmup", "steps", "a number of steps >= 0", self.steps)
        _expect(self.stages >= 1, "Warmup", "stages", "at least 1", self.stages)

    def __call__(self, step: int) -> float:
        if step >= self.steps:
            return self.density
        stage = step * self.stages // self.steps
        return float(self.start * (self.density / self.start) ** (stage / self.stages))


@dataclass(frozen=True, slots=True)
class SparDL:
    """Only the largest gradients travel; what is not sent is kept and added to the next gradient.

    Parameters
    ----------
    density: fraction of each bucket to keep, or a function of the step that returns it, such as ``Warmup``.
    teams, sag, residual, wire, wire_dtype, backend, profile: as for ``spardl.SparseAllreduce``.
    algorithm: ``"auto"`` sends a bucket densely where that is predicted to be faster; or any that
        ``spardl.SparseAllreduce`` knows, to compare with.
    momentum, nesterov: momentum correction: momentum is applied on each rank before selection, so that a gradient that
        waited arrives with the velocity it would have had. Take the momentum out of the optimizer when you set this.
    momentum_masking: where a gradient was sent, its velocity starts again from zero, so that old momentum does not
        carry weights the wrong way.
    local_clip: each rank's whole gradient is scaled down to this norm at most before it is added to what waits. For a
        global threshold c use c / √P. Needs all gradients first, so communication starts after backward.
    """

    density: Density
    teams: int | str = 1
    sag: str = "auto"
    residual: str = "global"
    wire: str = "auto"
    wire_dtype: str = "same"
    backend: str = "auto"
    algorithm: str = "spardl"
    profile: ProfileLike = None
    momentum: float = 0.0
    nesterov: bool = False
    momentum_masking: bool = True
    local_clip: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.density):
            _expect_density(self.density)
        number = isinstance(self.teams, int) and self.teams >= 1
        _expect(number or self.teams == AUTO, "SparDL", "teams", "a number >= 1 or 'auto'", self.teams)
        for name, choices in (
            ("algorithm", (*ALGORITHMS, AUTO)),
            ("sag", SAGS),
            ("residual", POLICIES),
            ("wire", INDEX_CODINGS),
            ("wire_dtype", VALUE_CODINGS),
        ):
            _expect(getattr(self, name) in choices, "SparDL", name, f"one of {choices}", getattr(self, name))
        _expect(0 <= self.momentum < 1, "SparDL", "momentum", "at least 0 and below 1", self.momentum)
        _expect(self.momentum > 0 or not self.nesterov, "SparDL", "momentum", "above 0 for nesterov", self.momentum)
        _expect(
            self.local_clip is None or self.local_clip > 0, "SparDL", "local_clip", "a norm above 0", self.local_clip
        )

    def density_at(self, step: int) -> float:
        if not callable(self.density):
            return self.density
        return _expect_density(self.density(step))

    def lasting_density(self, step: int) -> float:
        """What most of the training will use, as far as one can know: to plan for."""
        return self.density.density if isinstance(self.density, Warmup) else self.density_at(step)


@dataclass(frozen=True, slots=True)
class Dense:
    """Every gradient is summed, around a ring: the fewest bytes that a dense all-reduce can send."""


_SYSTEMS_TAKE = ("density", "wire", "wire_dtype", "backend")


def _expect_reduce(where: str, reduce: object) -> None:
    """SparDL with options that have a meaning in a system that does not wait for everyone, or Dense."""
    _expect(isinstance(reduce, SparDL | Dense), where, "reduce", "SparDL(…) or Dense()", reduce)
    if isinstance(reduce, SparDL):
        others = [field for field in fields(SparDL) if field.name not in _SYSTEMS_TAKE]
        given = [field.name for field in others if getattr(reduce, field.name) != field.default]
        _expect(not given, where, "reduce", f"without {', '.join(given)}, which {where} does not know", reduce)
        _expect(not callable(reduce.density), where, "density", "a number", reduce.density)


@dataclass(frozen=True, slots=True)
class RNA:
    """Nobody waits for the slowest: a round begins when a policy is content with who is ready, and they take part.

    Training never waits for communication, which runs in a thread of its own: ``step()`` deposits this rank's gradient
    and applies the rounds that have finished meanwhile, every rank all of them in the same order. Which ranks took part
    in a round depends on time, so two runs differ; the ranks of one run do not. Call ``handle.finish()`` in the end.

    A round is one ``step()`` of the optimizer, on every rank with rank 0's learning rate, momentum and other numbers
    of that moment. The gradient is the mean over those who contributed. If none did, since all gradients were too old,
    no step is made. Gradients of ``sparse=True`` embeddings are made dense. Buffers such as batch norm's running means
    stay each rank's own while it trains; ``finish()`` and ``settle()`` make them rank 0's, as DDP does.

    Parameters
    ----------
    reduce: ``Dense()``: gradients that wait are averaged, and those too old are dropped. A gradient of weights that are
        v rounds newer than the oldest one's weighs v + 1 times as much.
        ``SparDL(density=…)``: they are summed, and nothing is ever dropped. Of its options RNA takes ``wire``,
        ``wire_dtype`` and ``backend``, and a density that is a number.
    policy: ``PowerOfChoices(q)`` (RNA: the first of q random ranks), ``Majority()`` (one random rank), ``Solo()`` (the
        first of all), ``All()`` (bulk-synchronous: everyone waits for everyone).
    staleness: how many gradients of a rank may wait before its training does, and for how many rounds at most (dense).
    linear_scaling: for a round's step every ``lr`` is multiplied by the contributors' share of the group's ranks, so
        that one of four moves the weights a quarter as far, with any optimizer. False: ``lr`` is used as it is.
    patience: seconds without an answer after which a rank is asked for a sign of life, and left out if it gives none.
    local_steps: where no round has finished since the last ``step()``, train on with weights that this rank's own
        gradient has moved; that is taken back when a round has finished. Costs a copy of the weights.
    groups: for ranks that are slower for good, hierarchical RNA. Each group has rounds of its own; their weights are
        averaged now and then without anybody waiting, and made equal in the end. Lists of ranks, or ``"auto"``: ranks
        of similar speed, formed anew when speeds change. None: one group.
    period: a group's weights are averaged with the others' every so many of its rounds.
    """

    reduce: SparDL | Dense = Dense()
    policy: Policy = PowerOfChoices(2)  # noqa: RUF009
    staleness: int = 4
    linear_scaling: bool = True
    patience: float = 1.0
    local_steps: bool = False
    groups: Sequence[Sequence[int]] | str | None = None
    period: int = 10

    def __post_init__(self) -> None:
        _expect_reduce("RNA", self.reduce)
        _expect(self.staleness >= 1, "RNA", "staleness", "at least 1", self.staleness)
        _expect(self.patience > 0, "RNA", "patience", "seconds above 0", self.patience)
        _expect(self.period >= 1, "RNA", "period", "at least 1 round", self.period)
        lists = not isinstance(self.groups, str) or self.groups == "auto"
        _expect(lists, "RNA", "groups", 'lists of ranks, "auto" or None', self.groups)

    def require_fitting(self, ranks: int) -> None:
        self.first_groups(ranks)

    def first_groups(self, ranks: int) -> list[tuple[int, ...]]:
        """All in one until it is known how fast they are, unless groups are given; each in the order of its ranks."""
        if self.groups is None or isinstance(self.groups, str):
            return [tuple(range(ranks))]
        groups = [tuple(sorted(group)) for group in self.groups if group]
        whole = sorted(rank for group in groups for rank in group) == list(range(ranks))
        _expect(whole, "RNA", "groups", f"lists that have each of the {ranks} ranks once", self.groups)
        return groups


@dataclass(frozen=True, slots=True)
class PartialReduce:
    """Groups of whoever is ready average their models: a fast rank never waits for a slow one, only for P − 1 others.

    Every rank trains a model of its own. ``step()`` makes a step of the optimizer with this rank's gradients, tells
    that this rank is ready, and waits for a group of ranks that are; they average their weights. Models of different
    ranks differ, so evaluate and save after ``settle()`` or ``finish()``, which give all ranks the average of all.

    ``handle.iteration`` is how many iterations the model has seen, on this rank or on others whose models it got: in a
    group all get the most that a member has. A loop ``while handle.iteration < K`` ends on all ranks at about the same
    time, and slow ranks have made fewer steps of their own by then; a loop over data ends with the data.

    Float buffers, such as batch norm's running means, are averaged with the weights; of integer ones the largest is
    taken. Buffers that are not saved (``persistent=False``) stay as they are.

    Parameters
    ----------
    group: P, how many ranks form a group, from 2 to all; or ``"auto"``: as many as are usually ready within a fifth of
        a step of each other, chosen anew every 256 groups.
    weights: ``"constant"``: members count alike, which keeps the average of all models. ``"dynamic"``: the further
        behind a model is, the less it counts: α to the power of the iterations it lacks.
    alpha: α, above 0 and at most 1. With 1 members count alike.
    fill: weights as the paper has them, for comparison: every number of iterations between the freshest and the stalest
        member has a weight, and those that nobody has go to the ``"newest"``, the ``"nearest"`` or the ``"stalest"``
        member. None: only those that somebody has.
    window: ranks that were in one of the last so many groups together, directly or by others, are connected. While not
        all are, groups are formed so that they become so. None: 3 ⌈(N − 1) / (P − 1)⌉.
    global_every: after so many groups all ranks average once, exactly. None: never, and 50 if ``reduce`` is sparse.
    optimizer_state: ``"local"``: momentum and the like stay each rank's own. ``"average"``: they are averaged with the
        weights, and of step counters the largest is taken. ``"adopt"``: members get those of the freshest.
    reduce: ``Dense()``: members send all of their weights. ``SparDL(density=…)``, experimental: only the largest
        differences from the last average of all ranks; the others stay in each rank's own model. Of its options
        ``wire``, ``wire_dtype`` and ``backend`` are known, and a density that is a number.
    patience: seconds without an answer after which a rank is asked for a sign of life, and left out if it gives none.
    """

    group: int | str = 4
    weights: str = "dynamic"
    alpha: float = 0.5
    fill: str | None = None
    window: int | None = None
    global_every: int | None = None
    optimizer_state: str = "local"
    reduce: SparDL | Dense = Dense()
    patience: float = 1.0

    def __post_init__(self) -> None:
        name = "PartialReduce"
        size = _is_number(self.group, int) and self.group >= 2  # type: ignore[operator]
        _expect(size or self.group == AUTO, name, "group", 'a number of at least 2 ranks, or "auto"', self.group)
        for option, choices in (
            ("weights", _WEIGHTS),
            ("fill", (*FILLS, None)),
            ("optimizer_state", _STATES),
        ):
            _expect(getattr(self, option) in choices, name, option, f"one of {choices}", getattr(self, option))
        number = _is_number(self.alpha, int | float) and 0 < self.alpha <= 1
        _expect(number, name, "alpha", "a number above 0 and at most 1", self.alpha)
        dynamic = self.weights == "dynamic"
        _expect(dynamic or self.fill is None, name, "fill", "None where weights are constant", self.fill)
        for option in ("window", "global_every"):
            given = getattr(self, option)
            _expect(
                given is None or (_is_number(given, int) and given >= 1), name, option, "at least 1, or None", given
            )
        _expect_reduce(name, self.reduce)
        if isinstance(self.reduce, SparDL):
            local = self.optimizer_state == "local"
            _expect(local, name, "optimizer_state", '"local" where reduce is sparse', self.optimizer_state)
        _expect(
            _is_number(self.patience, int | float) and self.patience > 0, name, "patience", "above 0", self.patience
        )

    def settings(self) -> Settings:
        """For the protocol."""
        weights = Dynamic(self.alpha, self.fill) if self.weights == "dynamic" else Constant()
        every = self.global_every
        if every is None and isinstance(self.reduce, SparDL):
            every = _GLOBAL_EVERY
        return Settings(self.group, weights, self.window, every, self.patience)

    def require_fitting(self, ranks: int) -> None:
        """One rank can do with any group: there is nobody to wait for."""
        fits = isinstance(self.group, str) or self.group <= ranks or ranks == 1
        _expect(fits, "PartialReduce", "group", f"at most {ranks}, which is all ranks there are", self.group)


@dataclass(frozen=True, slots=True)
class Hop:
    """Decentralised training on a graph: every rank averages its model with its neighbours' only, in every iteration.

    Every rank trains a model of its own. Nothing is sent to all, and nobody decides for all. ``step()`` makes a step of
    the optimizer with this rank's gradients, and blends the model with its neighbours' of the same iteration. Models of
    different ranks differ, so evaluate and save after ``settle()`` or ``finish()``, which give all the average of all.
    Float buffers travel with the weights; of integer ones the largest is taken; the optimizer's state stays local.

    Parameters
    ----------
    graph: a name that ``spardl.graph`` knows (``spardl graph --ranks N`` shows them), or a graph for it.
    max_gap: how many iterations a rank may be ahead of those that it sends to; None: no limit of that kind.
    backup: so many of the neighbours that send to a rank need not be waited for in an iteration.
    staleness: neighbours' models may be so many iterations old, the newer counting more; None: only those of the same
        iteration count.
    reuse: a neighbour's model that is not too old counts again where nothing newer has come.
    skip: ``(behind, most)``: a rank whose neighbours are all ``behind`` iterations ahead, or more, jumps to where they
        are, by at most ``most``. Needs ``backup`` or ``staleness``.
    order: ``"parallel"``: neighbours get the model that an iteration begins with, while it is computed. ``"serial"``:
        they get it after this iteration's step.
    weights: ``"metropolis"``, which keeps the average of all models, or ``"uniform"``: all that a rank gets counts the
        same, as in the paper; that keeps it on regular graphs only.
    density: sparse gossip (CHOCO-SGD): only this share of the weights is sent, those that have changed the most since
        they were last sent; every rank keeps copies of its neighbours' models. In standard mode, serial order and on a
        graph that does not change.
    gamma: how far a model moves towards its neighbours' copies. None: 6 × density × the graph's spectral gap, up to 1.
    """

    graph: Any = "ring-based"
    max_gap: int | None = 4
    backup: int = 0
    staleness: int | None = None
    reuse: bool = False
    skip: tuple[int, int] | None = None
    order: str = "parallel"
    weights: str = "metropolis"
    density: float | None = None
    gamma: float | None = None

    def __post_init__(self) -> None:
        for option in ("max_gap", "staleness"):
            given = getattr(self, option)
            _expect(given is None or _is_number(given, int), "Hop", option, "a number or None", given)
        _expect(_is_number(self.backup, int), "Hop", "backup", "a number", self.backup)
        _expect(isinstance(self.reuse, bool), "Hop", "reuse", "True or False", self.reuse)
        pair = isinstance(self.skip, tuple) and len(self.skip) == 2 and all(_is_number(n, int) for n in self.skip)
        _expect(self.skip is None or pair, "Hop", "skip", "(behind, most) or None", self.skip)
        _expect(self.order in ORDERS, "Hop", "order", f"one of {ORDERS}", self.order)
        _expect(self.weights in RULES, "Hop", "weights", f"one of {tuple(RULES)}", self.weights)
        for option in ("density", "gamma"):
            given = getattr(self, option)
            share = given is None or (_is_number(given, int | float) and 0 < given <= 1)
            _expect(share, "Hop", option, "above 0 and at most 1, or None", given)
        if self.density is None:
            _expect(self.gamma is None, "Hop", "gamma", "None without density", self.gamma)
        else:
            standard = self.backup == 0 and self.staleness is None
            _expect(standard, "Hop", "density", "None with backup or staleness", self.density)
            _expect(self.order == "serial", "Hop", "order", '"serial" with density', self.order)

    def gamma_on(self, graph: Graph) -> float:
        """Larger ones diverge: what is not sent yet makes up for less than all of a step."""
        assert self.density is not None
        return self.gamma if self.gamma is not None else min(1.0, _GAMMA * self.density * graph.spectral_gap)

    def settings(self) -> HopSettings:
        """For the protocol."""
        skip = None if self.skip is None else Skip(*self.skip)
        return HopSettings(self.max_gap, self.backup, self.staleness, self.reuse, skip, self.order)

    def graph_for(self, ranks: int, hosts: Sequence[str] | None = None) -> Graph:
        return graph(self.graph, ranks, hosts=hosts, weights=self.weights)

    def require_fitting(self, ranks: int) -> None:
        graph = self.graph_for(ranks, _anywhere(self.graph, ranks))
        self.settings().require_legal(graph)
        fixed = self.density is None or graph.period == 1
        _expect(fixed, "Hop", "graph", "one that does not change, with density", self.graph)


@dataclass(frozen=True, slots=True)
class Gossip:
    """Asynchronous gossip (AD-PSGD): after every step a rank averages its model with one neighbour's, drawn at random.

    There are no iterations that ranks share. A neighbour that has a proposal of its own open answers that it is busy,
    and this rank goes on without: nobody waits in a circle, on any graph. Both models go half of the way to each other,
    which keeps the average of all. ``finish()`` and ``settle()`` give all ranks that.

    Parameters
    ----------
    graph: as for ``Hop``; ``"complete"``: with anybody.
    seed: of who asks whom.
    """

    graph: Any = "complete"
    seed: int = 0

    def __post_init__(self) -> None:
        _expect(_is_number(self.seed, int), "Gossip", "seed", "a number", self.seed)

    def graph_for(self, ranks: int, hosts: Sequence[str] | None = None) -> Graph:
        return graph(self.graph, ranks, hosts=hosts)

    def require_fitting(self, ranks: int) -> None:
        self.graph_for(ranks, _anywhere(self.graph, ranks))


def _anywhere(name: object, ranks: int) -> list[str] | None:
    """Hosts that fit, to check settings before the real ones are known."""
    return ["one"] * ranks if isinstance(name, str) and name == "hosts" else None


_WEIGHTS, _STATES = ("constant", "dynamic"), ("local", "average", "adopt")
_GLOBAL_EVERY = 50
_GAMMA = 6

Sync: TypeAlias = SparDL | Dense
System: TypeAlias = RNA | PartialReduce | Hop | Gossip
_RANKS_MAY_DIFFER_IN = ("backend", "profile")


def settings_of(sync: Sync) -> dict[str, str]:
    """What all ranks must have alike, in words; of a density that is a function, its first value."""
    values = {field.name: getattr(sync, field.name) for field in fields(sync) if field.name not in _RANKS_MAY_DIFFER_IN}
    if isinstance(sync, SparDL):
        values["density"] = sync.density_at(0)
    return {"sync": f"{type(sync).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"}


def require_fitting(sync: Sync | System, ranks: int) -> None:
    """Raises if this number of ranks cannot synchronise so: what the first step would find out."""
    if isinstance(sync, System):
        sync.require_fitting(ranks)
    elif isinstance(sync, SparDL):
        options = {
            name: getattr(sync, name) for name in ("algorithm", "teams", "sag", "residual", "wire", "wire_dtype")
        }
        _checked_config(ranks, 1, k=None, density=sync.density_at(0), **options)


def _expect(condition: object, where: str, name: str, expected: str, got: object) -> None:
    if not condition:
        raise ValueError(f"{where}: expected {name} to be {expected}, got {got!r}")


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _expect_density(density: Any) -> float:
    number = _is_number(density, int | float) and 0 < density <= 1
    _expect(number, "SparDL", "density", "a number above 0 and at most 1", density)
    return float(density)
