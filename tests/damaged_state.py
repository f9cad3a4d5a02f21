"""States that were damaged, in every way that one place can be."""

import numpy as np

_INSTEAD = (None, "damaged", float("nan"), [], {}, object(), [[["deep"]]])


def damaged(state, path=()):
    """(path, what was done, a copy of the state with that done), for every place in nested dicts, lists and tuples."""
    for replacement in _INSTEAD:
        if not _same(replacement, state):
            yield path, f"replaced by {replacement!r}", replacement
    if hasattr(state, "dtype"):
        yield from ((path, what, array) for what, array in _damaged_arrays(state))
    elif isinstance(state, dict):
        yield path, "one too many", state | {"unknown": 1}
        for key in state:
            yield (*path, key), "deleted", {other: value for other, value in state.items() if other != key}
            for inner, what, value in damaged(state[key], (*path, key)):
                yield inner, what, state | {key: value}
    elif isinstance(state, list | tuple):
        kind = type(state)
        yield path, "one too many", kind([*state, None])
        for place, old in enumerate(state):
            yield (*path, place), "deleted", kind([*state[:place], *state[place + 1 :]])
            for inner, what, value in damaged(old, (*path, place)):
                yield inner, what, kind([*state[:place], value, *state[place + 1 :]])


def _damaged_arrays(array):
    yield "cut short", array[:-1]
    yield "of another shape", array[None]
    yield "of integers", np.asarray(array).astype(np.int16) if isinstance(array, np.ndarray) else array.short()
    if isinstance(array, np.ndarray) and array.dtype.kind != "f":
        yield "negated", -array
        return
    for bad in (np.nan, np.inf):
        spoilt = array.copy() if isinstance(array, np.ndarray) else array.clone()
        spoilt.reshape(-1)[len(spoilt) // 2] = bad
        yield f"with {bad}", spoilt


def frozen(state):
    """Something to compare states by, bit for bit."""
    if isinstance(state, dict):
        return {key: frozen(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [frozen(value) for value in state]
    if hasattr(state, "dtype"):
        array = np.asarray(state)
        return array.dtype.str, array.shape, array.tobytes()
    return state


def assert_refused(load, look, good, harmless=()):
    """Whatever is damaged: ValueError and nothing has changed, or what is loaded is the good state all the same.

    ``look`` returns the state as it is now. ``harmless``: (path, what was done) that makes another sound state.
    """
    before = frozen(look())
    tried = 0
    for path, what, state in damaged(good):
        tried += 1
        try:
            load(state)
        except ValueError:
            assert frozen(look()) == before, (path, what)
            continue
        assert what != "one too many" or (path, what) in harmless, path
        if (path, what) not in harmless:
            assert frozen(look()) == frozen(good), (path, what)
        before = frozen(look())
    return tried


def _same(one, other):
    return type(one) is type(other) and isinstance(one, type(None) | list | dict) and one == other
