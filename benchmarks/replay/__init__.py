"""Searches replayed on recorded learning curves: how good is the winner, after how many federated rounds?

    make bench-search                                       # every searcher on every recorded table, minutes each
    python -m benchmarks.replay run --tables fedavg --searchers random-1 fedtune-1 --repetitions 20
    python -m benchmarks.replay run --tables "fedavg, trees"    # in another world than that of a Gaussian process
    python -m benchmarks.replay run --table mine.npz   # a table that `fedtune export RUN --table` made, or a folder
    python -m benchmarks.replay run --tables auto      # `fedtune auto` on its own tables, beside what was measured
    python -m benchmarks.replay record                # puts what was measured into docs/search-quality.md

Nothing is trained. A `Table` (`table.py`) answers "configuration c, seed s, one more round": from recorded curves, or
from models of them where any point of a continuous space may be asked for, in three worlds (`surrogate.py`). A
`Searcher` (`searcher.py`) asks and is told; `simulator.py` gives it slots and a budget, `measures.py` judges the winner
on seeds that the searcher never saw, `page.py` makes the page. Searchers are in `searchers/`, those of other packages
run in a process of their own (`peer.py`, `arms/`). `objectives/` has searches with several objectives, `auto/` replays
`fedtune auto` on all methods of a data set.
"""
