"""``spardl doctor``: facts of all ranks (``look``), a small pure judge per concern, and a self-test (``examine``)."""
