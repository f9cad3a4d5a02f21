"""Damaged frames through the decoders of all backends."""

from typing import Any, NamedTuple

import numpy as np
from damage import KINDS, Bytes
from tally import CRASHED, EQUAL, REFUSED, SOUND, WRONG, Tally

from spardl import WireError, kernels
from spardl.wire import Block, Codec

UNSIGNED = np.frombuffer(b"unsigned", np.uint8)  # in place of a frame's digest


class Sample(NamedTuple):
    """A frame, and what has to come out of it."""

    frame: Bytes
    block: tuple[int, int]
    wide: bool
    bits: tuple[Any, ...]


def draw_sample(rng: np.random.Generator) -> Sample:
    codec = Codec(
        kernels.load("native"), str(rng.choice(["raw", "packed", "auto"])), str(rng.choice(["same", "bf16", "fp16"]))
    )
    length = int(rng.choice([0, 1, 40, 700, 5000, 2**31 - 1, 2**31 + 5]))
    base = 0 if length > 2**30 else int(rng.choice([0, 7, 100_000]))
    wide = length + base > 2**31 or bool(rng.integers(2))
    count = min(length, int(rng.integers(90)))
    chosen = np.sort(rng.choice(min(length, 10_000), count, replace=False))
    indices = (base + chosen).astype(np.int64 if wide else np.int32)
    if length > 10_000 and count and rng.integers(2):
        indices[-1] = base + length - 1
    values, _ = codec.round(rng.standard_normal(count).astype(rng.choice([np.float32, np.float64])))
    write = codec.encode_shorter if length <= 5000 and rng.integers(2) else codec.encode
    frame = write(indices, values, base, length)
    return Sample(frame, (base, length), wide, bits_of(codec.decode(frame, wide)))


def bits_of(block: Block) -> tuple[Any, ...]:
    arrays = (block.indices, block.values)
    return block.base, block.length, *(part for array in arrays for part in (array.dtype.str, array.tobytes()))


def try_frames(seed: int, count: int) -> Tally:
    """So many damaged frames; every other one has lost its digest, so that only what it says of itself is left."""
    rng, tally = np.random.default_rng(seed), Tally()
    codecs = {name: Codec(kernels.load(name)) for name in kernels.BACKENDS}
    sample = draw_sample(rng)
    for number in range(count):
        if number % 8 == 0:
            sample = draw_sample(rng)
        name = str(rng.choice([*KINDS]))
        damaged = KINDS[name](rng, sample.frame.copy())
        has_digest = number % 2 == 0
        if not has_digest and len(damaged) >= 16:
            damaged[8:16] = UNSIGNED
        answers = {}
        for backend, codec in codecs.items():
            verdict, answers[backend], story = judge(codec, damaged, sample, has_digest)
            if answers[backend] != answers[kernels.BACKENDS[0]] and verdict != CRASHED:
                verdict, story = WRONG, f"differs from {kernels.BACKENDS[0]}"
            story = f"frame {number} of seed {seed}: {story}"
            tally.add(name, "fits not" if has_digest else "none", backend, verdict, story)
    return tally


def judge(codec: Codec, damaged: Bytes, sample: Sample, has_digest: bool) -> tuple[str, Any, str]:
    """The verdict, what came out, and what is to be told of it."""
    try:
        block = codec.decode(damaged, sample.wide, sample.block)
    except WireError as error:
        return REFUSED, None, str(error)
    except BaseException as error:
        return CRASHED, None, f"{type(error).__name__}: {error}"
    got = bits_of(block)
    if got == sample.bits:
        return EQUAL, got, ""
    if has_digest:
        return WRONG, got, "accepted"
    return (SOUND if is_sound(block, sample) else WRONG), got, "not sound"


def is_sound(block: Block, sample: Sample) -> bool:
    """What kernels may rely on."""
    base, length = sample.block
    indices = block.indices
    return (
        (block.base, block.length) == sample.block
        and len(indices) == len(block.values)
        and bool(np.all(np.diff(indices) > 0))
        and bool(np.all((indices >= base) & (indices < base + length)))
    )
