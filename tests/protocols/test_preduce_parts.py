"""How members of a group average: exact on scaled integers, whatever their number, and nothing of hostile bytes."""

import math

import numpy as np
import pytest

from spardl import NonFiniteGradient, WireError, kernels
from spardl.collectives.allgather import gather
from spardl.errors import DtypeDisagreement
from spardl.protocols.models import Model
from spardl.protocols.preduce.notes import Assemble
from spardl.protocols.preduce.parts import DensePart, SparsePart
from spardl.runtime.among import among
from spardl.runtime.loopback import loopback
from spardl.wire import Codec

UNIT = math.lcm(*range(1, 9))  # divided by the size of any group
SIZES = range(1, 9)
LENGTHS = (11, 900, 9000)  # for each of the dense all-reduces
DTYPES = ("float32", "float64")


def ranks_of(size):
    """Members of a group, which are not all ranks there are."""
    return tuple(range(3, 3 + 2 * size, 2))


def group_of(size, weight=None, *, freshest=0, everyone=False):
    members = ranks_of(size)
    return Assemble(1, members, 1 / size if weight is None else weight, 9, members[freshest], members[0], everyone)


def averages(parts, offers, weights=None, *, take=True, seed=None, **options):
    """What members get of one group."""
    size = len(parts)
    shares = weights or [1 / size] * size
    results = loopback(
        [
            part.average(group_of(size, share, **options), me, offer)
            for part, me, offer, share in zip(parts, ranks_of(size), offers, shares, strict=True)
        ],
        seed=seed,
    )
    return [part.take(result) for part, result in zip(parts, results, strict=True)] if take else results


def integers(rng, shape, most=9):
    """Multiples of UNIT: any average of a group of them is an integer, and exact in 32 bits."""
    return rng.integers(-most, most + 1, shape) * UNIT


def models(values, dtype="float64", state=None):
    state = values.shape[1] if state is None else state
    return [Model(row.astype(dtype), state) for row in values]


def values_of(results):
    return [result.values for result in results]


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_members_get_the_average_exactly(size, dtype):
    rng = np.random.default_rng(size)
    for length in LENGTHS:
        values = integers(rng, (size, length))
        results = averages([DensePart() for _ in range(size)], models(values, dtype), seed=size)
        for result in results:
            assert result.values.dtype == dtype
            np.testing.assert_array_equal(result.values, values.sum(0) // size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_members_are_equal_to_the_bit(size, dtype):
    rng = np.random.default_rng(size)
    for length in LENGTHS:
        offers = models(rng.standard_normal((size, length)), dtype)
        first, *others = averages(
            [DensePart() for _ in range(size)], offers, list(rng.dirichlet([1] * size)), seed=size
        )
        for other in others:
            assert other.values.tobytes() == first.values.tobytes()


def test_weights_count():
    values = integers(np.random.default_rng(0), (4, 20))
    shares = [1 / 2, 1 / 4, 1 / 8, 1 / 8]
    expected = values[0] / 2 + values[1] / 4 + values[2] / 8 + values[3] / 8
    for result in averages([DensePart() for _ in range(4)], models(values, "float32"), shares):
        np.testing.assert_array_equal(result.values, expected)


@pytest.mark.parametrize("weight", [0.0, 1e-300, 1e-40])
def test_a_weight_may_be_nothing(weight):
    """As that of a rank which is a thousand iterations behind."""
    values = integers(np.random.default_rng(0), (2, 20))
    for part in (DensePart, lambda: sparse(40, np.zeros(20, np.float32))):
        for result in averages([part(), part()], models(values, "float32"), [1 - weight, weight]):
            np.testing.assert_array_equal(result.values, values[0])


@pytest.mark.parametrize("size", SIZES)
def test_averaging_again_and_again_does_not_make_models_grow(size):
    """One float32 is too large for 1/3: a model that is multiplied with it grows by 3e-8 each time."""
    rng = np.random.default_rng(size)
    parts = [DensePart() for _ in range(size)]
    offers, rounds = models(1 + rng.random((size, 3000)), "float32"), 40
    drift = 0.0
    for _ in range(rounds):
        mean = np.mean([offer.values.astype(np.float64) for offer in offers], 0)
        (result, *_) = averages(parts, offers)
        drift += float(np.mean(result.values / mean - 1))
        offers = models(result.values * (1 + 1e-3 * rng.standard_normal((size, 3000))), "float32")
    assert abs(drift / rounds) < 3e-9


@pytest.mark.parametrize("size", SIZES)
def test_of_counts_and_numbers_members_get_the_largest(size):
    rng = np.random.default_rng(size)
    counts, numbers = rng.integers(-(2**60), 2**60, (size, 5)), rng.standard_normal((size, 3))
    values = integers(rng, (size, 4))
    offers = [
        offer._replace(counts=own, numbers=its) for offer, own, its in zip(models(values), counts, numbers, strict=True)
    ]
    for part in (DensePart, lambda: sparse(2, np.zeros(4))):
        for result in averages([part() for _ in range(size)], offers):
            np.testing.assert_array_equal(result.counts, counts.max(0))
            np.testing.assert_array_equal(result.numbers, numbers.max(0))


@pytest.mark.parametrize("freshest", [0, 1, 2])
@pytest.mark.parametrize("length", LENGTHS)
def test_members_adopt_the_state_of_the_freshest(length, freshest):
    """To the bit, and its numbers; what comes before is averaged, and of counts the largest is taken."""
    rng = np.random.default_rng(freshest)
    values, state = np.hstack([integers(rng, (3, length)), rng.standard_normal((3, length))]), length
    numbers, counts = rng.standard_normal((3, 2)), rng.integers(0, 9, (3, 1))
    offers = [
        offer._replace(counts=own, numbers=its)
        for offer, own, its in zip(models(values, "float64", state), counts, numbers, strict=True)
    ]
    for result in averages([DensePart(adopts=True) for _ in range(3)], offers, freshest=freshest):
        np.testing.assert_array_equal(result.values[:state], values[:, :state].sum(0) / 3)
        assert result.values[state:].tobytes() == values[freshest, state:].tobytes()
        np.testing.assert_array_equal(result.numbers, numbers[freshest])
        np.testing.assert_array_equal(result.counts, counts.max(0))


# -- differences -------------------------------------------------------------------------------------------------------

BACKENDS = ("native", "numpy")


def sparse(k, anchor, backend="numpy", wire="same"):
    chosen = kernels.load(backend)
    return SparsePart(k, anchor, chosen, Codec(chosen, "auto", wire))


def sparse_parts(size, k, anchor, dtype="float64", backend="numpy", wire="same"):
    return [sparse(k, anchor.astype(dtype), backend, wire) for _ in range(size)]


def distinct(rng, size, length):
    """Multiples of UNIT that differ by size, so that there is one answer to which are the largest."""
    drawn = [rng.permutation(np.arange(1, length + 1)) * rng.choice([-1, 1], length) for _ in range(size)]
    return np.array(drawn) * UNIT


def largest(differences, k):
    """All but the k largest are zero."""
    kept = np.zeros_like(differences)
    for row, of_it in zip(kept, differences, strict=True):
        chosen = np.argsort(-np.abs(of_it))[:k]
        row[chosen] = of_it[chosen]
    return kept


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_what_a_group_makes_of_differences(size, dtype, backend):
    """x ← a + Σ β d + (x − a − d), where d are the k largest of x − a: what is not sent stays."""
    rng = np.random.default_rng(size)
    anchor, length = integers(rng, 40), 40
    parts = {k: sparse_parts(size, k, anchor, dtype, backend) for k in (1, 7, 39)}
    for k, members in parts.items():
        for _ in range(3):  # selection learns from the last time
            differences = distinct(rng, size, length)
            values = anchor + differences
            sent = largest(differences, k)
            results = values_of(averages(members, models(values, dtype), seed=size))
            for own, difference, its in zip(results, differences, sent, strict=True):
                np.testing.assert_array_equal(own, anchor + sent.sum(0) // size + difference - its)
            np.testing.assert_array_equal(np.sum(results, 0), values.sum(0))
            assert members[0].entries == np.count_nonzero(np.any(sent, 0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [2, 4, 8])
def test_differences_of_any_kind_keep_the_sum_where_halves_are_exact(size, dtype):
    rng = np.random.default_rng(size)
    anchor, values = rng.integers(-999, 1000, 50), rng.integers(-99999, 99999, (size, 50))
    results = values_of(averages(sparse_parts(size, 9, anchor, dtype), models(values, dtype)))
    np.testing.assert_array_equal(np.sum(results, 0, np.float64), values.sum(0))


def test_differences_count_by_their_weights():
    """Σ β x is what it was."""
    rng = np.random.default_rng(0)
    shares = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 8])
    anchor, values = integers(rng, 30), integers(rng, (4, 30), most=99)
    results = values_of(averages(sparse_parts(4, 5, anchor), models(values), list(shares)))
    np.testing.assert_array_equal(shares @ results, shares @ values)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES)
def test_with_all_differences_sent_members_get_the_average(size, backend):
    """To the bit, also where it is rounded."""
    rng = np.random.default_rng(size)
    for k in (25, 26, 1000):
        anchor, values = integers(rng, 25), integers(rng, (size, 25), most=99)
        for own in values_of(averages(sparse_parts(size, k, anchor, "float32", backend), models(values, "float32"))):
            np.testing.assert_array_equal(own, values.sum(0) // size)
        anchor, values = rng.standard_normal(25), rng.standard_normal((size, 25))
        first, *others = values_of(
            averages(sparse_parts(size, k, anchor, "float32", backend), models(values, "float32"))
        )
        np.testing.assert_allclose(first, values.mean(0), rtol=1e-5, atol=1e-6)
        for other in others:
            assert other.tobytes() == first.tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wire", ["fp16", "bf16"])
@pytest.mark.parametrize("size", SIZES)
def test_differences_of_16_bits_keep_the_sum(size, wire, backend):
    """Times a power of two, UNIT is a number of 16 bits, and so is what it is divided by."""
    rng = np.random.default_rng(size)
    anchor = integers(rng, 40)
    for k in (3, 40):
        differences = 2 ** rng.integers(0, 6, (size, 40)) * rng.choice([-1, 0, 1], (size, 40)) * UNIT
        values = anchor + differences
        results = values_of(
            averages(sparse_parts(size, k, anchor, "float32", backend, wire), models(values, "float32"))
        )
        np.testing.assert_array_equal(np.sum(results, 0), values.sum(0))
        if k == 40:
            np.testing.assert_array_equal(results[0], values.sum(0) // size)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wire", ["fp16", "bf16"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_what_is_lost_in_16_bits_stays_in_a_members_own_model(size, wire, backend):
    """Also of differences that are larger than such a number can be."""
    rng = np.random.default_rng(size)
    anchor, values = rng.integers(-999, 1000, 40), rng.integers(-99999, 99999, (size, 40))
    results = values_of(averages(sparse_parts(size, 40, anchor, "float64", backend, wire), models(values)))
    np.testing.assert_array_equal(np.sum(results, 0), values.sum(0))
    if size > 1:
        assert np.any(results[0] != results[1])
        assert np.abs(results[0] - values.mean(0)).max() < np.abs(values - anchor).max()


@pytest.mark.parametrize("backend", BACKENDS)
def test_differences_that_cancel_are_gone(backend):
    """The sum is zero where somebody has sent, and so it is applied."""
    anchor, values = np.zeros(6), np.array([[UNIT, 0, 0, 5, 0, 0], [-UNIT, 0, 0, 0, 0, 5]])
    results = values_of(averages(sparse_parts(2, 1, anchor, backend=backend), models(values)))
    np.testing.assert_array_equal(results, [[0, 0, 0, 5, 0, 0], [0, 0, 0, 0, 0, 5]])


def test_models_that_do_not_differ_stay():
    anchor = integers(np.random.default_rng(0), 12)
    parts = sparse_parts(3, 2, anchor)
    for own in values_of(averages(parts, models(np.array([anchor] * 3)))):
        np.testing.assert_array_equal(own, anchor)
    assert parts[0].entries == 0


@pytest.mark.parametrize("size", SIZES)
def test_an_average_of_all_becomes_the_anchor(size):
    rng = np.random.default_rng(size)
    parts = sparse_parts(size, 2, np.zeros(10))
    values = integers(rng, (size, 10)) * UNIT
    mean = values.sum(0) // size
    for own in values_of(averages(parts, models(values), everyone=True)):
        np.testing.assert_array_equal(own, mean)
    differences = distinct(rng, size, 10)
    sent = largest(differences, 2)
    results = values_of(averages(parts, models(mean + differences)))
    for own, difference, its in zip(results, differences, sent, strict=True):
        np.testing.assert_array_equal(own, mean + sent.sum(0) // size + difference - its)


@pytest.mark.parametrize("size", SIZES)
def test_what_travels_with_the_weights_is_sent_whole(size):
    rng = np.random.default_rng(size)
    values = integers(rng, (size, 30))
    for own in values_of(averages(sparse_parts(size, 1, np.zeros(10)), models(values))):
        np.testing.assert_array_equal(own[10:], values[:, 10:].sum(0) // size)


def test_a_weight_that_is_not_finite_is_told_of_by_its_rank():
    parts, offers = sparse_parts(3, 2, np.zeros(10)), models(np.ones((3, 10)))
    offers[1].values[7] = np.inf
    with pytest.raises(NonFiniteGradient, match=r"a weight on rank 1 is not finite.* at index 7") as raised:
        averages(parts, offers)
    assert (raised.value.rank, raised.value.index) == (1, 7)
    members = ranks_of(3)
    with pytest.raises(NonFiniteGradient, match="on rank 5") as raised:
        next(among(members, parts[1].average(group_of(3), members[1], offers[1])))
    assert raised.value.rank == 5


# -- groups that are called off ----------------------------------------------------------------------------------------

BOTH = {
    "dense": lambda: DensePart(),
    "sparse": lambda: sparse(3, np.zeros(20)),
    "sparse, of longer models": lambda: sparse(3, np.zeros(15)),
}


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("everyone", [False, True])
def test_an_offer_is_left_alone_until_the_average_is_taken(kind, everyone):
    values = integers(np.random.default_rng(0), (3, 20))
    parts, offers = [BOTH[kind]() for _ in range(3)], models(values)
    results = averages(parts, offers, take=False, everyone=everyone)
    np.testing.assert_array_equal(values_of(offers), values)
    for part, result, own in zip(parts, results, values, strict=True):
        taken = part.take(result)
        assert np.any(taken.values != own)


def begin(part, offer, everyone):
    """A member's first message, in memory that others may be reading after the group was called off."""
    member = part.average(group_of(4, everyone=everyone), ranks_of(4)[0], offer)
    effect = next(member)
    sent = effect.payload if isinstance(effect.payload, list) else [np.asarray(effect.payload)]
    member.close()
    return sent


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("abandoned", [False, True])
def test_after_a_group_that_was_called_off_nothing_of_it_is_written_to(kind, abandoned):
    """``abandoned``: it was to have everyone. Whatever groups come then."""
    rng = np.random.default_rng(0)
    parts = [BOTH[kind]() for _ in range(4)]
    averages(parts, models(integers(rng, (4, 20))), everyone=True)  # so that there are buffers to use again
    left = [begin(part, offer, abandoned) for part, offer in zip(parts, models(integers(rng, (4, 20))), strict=True)]
    before = [[array.copy() for array in sent] for sent in left]
    for everyone in (False, False, True, True, False):
        values = integers(rng, (4, 20))
        results = averages(parts, models(values), everyone=everyone)
        np.testing.assert_array_equal(np.sum(values_of(results), 0), values.sum(0))
        for sent, copies in zip(left, before, strict=True):
            for array, its_copy in zip(sent, copies, strict=True):
                assert not any(np.shares_memory(array, result.values) for result in results)
                np.testing.assert_array_equal(array, its_copy)


def test_an_average_that_does_not_count_is_not_written_to():
    """This rank had it when the group was called off, and another may still be reading what it has sent."""
    rng = np.random.default_rng(0)
    parts = [DensePart() for _ in range(3)]
    lost = averages(parts, models(integers(rng, (3, 20))), take=False)
    before = [own.copy() for own in values_of(lost)]
    for _ in range(2):
        averages(parts, models(integers(rng, (3, 20))))
        np.testing.assert_array_equal(values_of(lost), before)


def test_memory_is_used_again_when_the_average_was_taken():
    rng = np.random.default_rng(0)
    parts = [DensePart() for _ in range(3)]
    first, second = (averages(parts, models(integers(rng, (3, 20)))) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.values is other.values


def test_models_may_get_longer():
    """As with the first step of an optimizer that keeps a state."""
    rng = np.random.default_rng(0)
    parts = [DensePart() for _ in range(3)]
    for length in (5, 20, 10):
        values = integers(rng, (3, length))
        for own in values_of(averages(parts, models(values))):
            np.testing.assert_array_equal(own, values.sum(0) // 3)


# -- hostile bytes -----------------------------------------------------------------------------------------------------

LENGTHENED = np.arange(3, dtype=np.uint8)
DAMAGES = {
    "without its last byte": lambda message: message[:-1],
    "without its last number": lambda message: message[:-8],
    "its beginning": lambda message: message[:5],
    "empty": lambda message: message[:0],
    "longer by 3 bytes": lambda message: np.concatenate([message, LENGTHENED]),
    "twice": lambda message: np.concatenate([message, message]),
}


class Tampered:
    """A member of a group whose n-th message arrives damaged."""

    def __init__(self, damage, nth):
        self._damage, self._nth = damage, nth
        self.happened = False

    def read(self, collective):
        arrived = None
        while True:
            try:
                effect = collective.send(arrived)
            except StopIteration as stop:
                return stop.value
            arrived = yield effect
            if arrived is not None:
                if self._nth == 0 and len(arrived):
                    self.happened, arrived = True, self._damage(arrived)
                self._nth -= len(arrived) > 0  # an empty one has nothing to lose


def models_with_counts(values):
    counts = np.arange(3, dtype=np.int64)
    return [offer._replace(counts=counts, numbers=np.ones(2)) for offer in models(values)]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_a_message_of_another_length_is_refused(size, kind, damage):
    """Each that a member gets, one after the other; its offer is left alone."""
    values = integers(np.random.default_rng(0), (size, 20))
    for nth in range(20):
        parts, offers, tampered = (
            [BOTH[kind]() for _ in range(size)],
            models_with_counts(values),
            Tampered(DAMAGES[damage], nth),
        )
        members = [
            part.average(group_of(size), me, offer)
            for part, me, offer in zip(parts, ranks_of(size), offers, strict=True)
        ]
        members[1] = tampered.read(members[1])
        try:
            loopback(members)
        except WireError:
            assert tampered.happened
            np.testing.assert_array_equal(offers[1].values, values[1])
            continue
        assert not tampered.happened
        assert nth >= 2  # all messages were tried
        return
    raise AssertionError("there is no end of messages")


def frame_of(length, values, wire="same"):
    """A frame of differences as a member writes it."""
    indices = np.arange(len(values), dtype=np.int32)
    return Codec(kernels.load("numpy"), "auto", wire).encode(indices, values, 0, length)


def with_weight(weight, frame):
    return np.concatenate([np.array([weight]).view(np.uint8), frame])


def unsigned(frame):
    """With the word in place of a checksum that stands for none."""
    return np.concatenate([frame[:8], np.frombuffer(b"unsigned", np.uint8), frame[16:]])


GOOD = frame_of(20, np.ones(3))
HOSTILE = {
    "nothing": (np.zeros(0, np.uint8), "0 bytes arrived from rank 1, expected a weight and a frame"),
    "half a weight": (np.zeros(7, np.uint8), "7 bytes arrived from rank 1"),
    "a weight alone": (with_weight(0.5, GOOD[:0]), "frame of 0 bytes is shorter than its header"),
    "a weight of nan": (with_weight(math.nan, GOOD), "a weight of nan arrived from rank 1"),
    "a negative weight": (with_weight(-0.5, GOOD), "a weight of -0.5 arrived"),
    "a large weight": (with_weight(1.5, GOOD), "a weight of 1.5 arrived"),
    "half a frame": (with_weight(0.5, GOOD[: len(GOOD) // 2]), "frame of 40 bytes is shorter than its header"),
    "a frame without its end": (with_weight(0.5, GOOD[:-8]), "its checksum does not fit"),
    "a frame and more": (with_weight(0.5, np.concatenate([GOOD, GOOD])), "its checksum does not fit"),
    "a frame without its end or a checksum": (with_weight(0.5, unsigned(GOOD)[:-8]), "72 bytes"),
    "a frame of another model": (with_weight(0.5, frame_of(21, np.ones(3))), "expected one of 0 to 20"),
    "a frame with a bit flipped": (
        with_weight(0.5, GOOD ^ (np.arange(len(GOOD)) == 60).astype(np.uint8)),
        "its checksum does not fit",
    ),
}


def meets(hostile):
    """A member of a pair whose other member sends that in place of its differences."""
    offer = models(np.ones((1, 20)))[0]
    honest = sparse(3, np.zeros(20)).average(group_of(2), ranks_of(2)[0], offer)
    loopback([honest, gather(range(2), 1, hostile)])


def test_a_frame_that_is_not_hostile():
    """So that the others mean something."""
    meets(with_weight(0.5, GOOD))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_member_is_refused(hostile):
    frame, words = HOSTILE[hostile]
    with pytest.raises(WireError, match=words):
        meets(frame)


def test_differences_of_another_type_are_refused():
    """By either member: both know who has which."""
    frame, words = with_weight(0.5, frame_of(20, np.ones(3, np.float32))), "float64 on rank {}, float32 on rank {}"
    with pytest.raises(DtypeDisagreement, match=words.format(0, 1)):
        meets(frame)
    honest = sparse(3, np.zeros(20)).average(group_of(2), ranks_of(2)[1], models(np.ones((1, 20)))[0])
    with pytest.raises(DtypeDisagreement, match="float32 on rank 0, float64 on rank 1"):
        loopback([gather(range(2), 0, frame), honest])


@pytest.mark.parametrize("length", [0, 8, 39, 41, 80])
def test_counts_of_another_length_are_refused(length):
    """Whole messages, of a member that counts something else."""
    (offer,) = models_with_counts(np.ones((1, 0)))
    honest = DensePart().average(group_of(2), ranks_of(2)[0], offer)

    def hostile():
        yield from DensePart().average(group_of(2), ranks_of(2)[1], models(np.ones((1, 0)))[0])
        yield from gather(range(2), 1, np.zeros(length, np.uint8))

    with pytest.raises(WireError, match=f"{length} bytes of counts arrived, expected 40"):
        loopback([honest, hostile()])
