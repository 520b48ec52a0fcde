"""Searches with several objectives, replayed: how much of the true Pareto front is found, after how many rounds?

`make bench-search` replays them on every recorded table that keeps other validation metrics beside its own. A curve has
a value per objective in every round, and in place of a winner a searcher names a front (`searcher.Front`), which is
valued by its hypervolume on seeds that the searcher never saw (`table.py`, `measures.py`). Slots, budgets, oracles and
the searchers of other packages are those of searches with one objective.
"""
