"""networkx, or a sentence that says how to get it."""

try:
    import networkx as nx
except ImportError as error:
    raise ImportError("graphs need networkx: pip install 'spardl[graphs]'", name="networkx") from error

__all__ = ["nx"]
