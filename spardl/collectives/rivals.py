"""The published alternatives to SparDL by name, to compare with; all are built alike."""

from collections.abc import Callable
from functools import partial

from spardl.collectives.dense_mpi import dense_mpi
from spardl.collectives.dense_rabenseifner import dense_rabenseifner
from spardl.collectives.dense_recursive_doubling import dense_recursive_doubling
from spardl.collectives.dense_reducer import DenseReducer
from spardl.collectives.dense_ring import dense_ring
from spardl.collectives.gtopk import GTopk
from spardl.collectives.oktopk import OkTopk
from spardl.collectives.reducer import Reducer
from spardl.collectives.topk_a import TopkA
from spardl.collectives.topk_dsa import TopkDSA

DENSE: dict[str, Callable[..., Reducer]] = {
    "dense_ring": partial(DenseReducer, dense_ring),
    "dense_rabenseifner": partial(DenseReducer, dense_rabenseifner),
    "dense_recursive_doubling": partial(DenseReducer, dense_recursive_doubling),
    "dense_mpi": partial(DenseReducer, dense_mpi),
}
RIVALS: dict[str, Callable[..., Reducer]] = DENSE | {
    "topk_a": TopkA,
    "topk_dsa": TopkDSA,
    "gtopk": GTopk,
    "oktopk": OkTopk,
}
