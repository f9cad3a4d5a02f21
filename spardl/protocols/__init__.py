"""Systems that do not wait for the slowest rank, as pure processes: they ask, and a carrier answers."""
