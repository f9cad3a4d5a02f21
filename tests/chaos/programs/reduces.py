"""Bare reduces, one after the other."""

import hashlib

import numpy as np
from rank import options, reporting, steps, tell, world

import spardl

SIZE = options.get("size", 1000)

digest = hashlib.blake2b(digest_size=8)
random = np.random.default_rng(world.rank)
with reporting():
    reducer = spardl.SparseAllreduce(world, SIZE, k=SIZE // 10, **options.get("reducer", {}))
    for _ in steps():
        result = reducer.reduce(random.standard_normal(SIZE, np.float32))
        digest.update(result.indices.tobytes() + result.values.tobytes())
    tell("done", digest=digest.hexdigest())
