"""The algorithms, one per file, as generators that yield effects; a runtime drives them."""
