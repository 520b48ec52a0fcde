"""Recorded learning curves of searches and of `fedtune auto`, and the command that records them.

    make tables                                               # what is missing, for hours; Ctrl-C and go on at any time
    python -m benchmarks.tables list                    # the tables: what is declared, what is recorded
    python -m benchmarks.tables record --only fedavg --hours 2
    python -m benchmarks.tables record --only fedavg --configurations 20 --seeds 4
    python -m benchmarks.tables record --only auto      # every method on every data set, under equal conditions

A table may have two stages (`best`, `further` of `specs.Spec`): all configurations over a few seeds, then the best of
them over further ones, the same for all, so that they can be told apart: that of real images, `mnist` (28 × 28, 40
minutes of one core).

A table may be recorded in parts: a smaller one (`--configurations 20 --seeds 4`) is the beginning of the whole. What is
kept of seeds that are not complete lies in `bench/tables`, which `make clean` removes.

`specs` and `auto_specs` declare the tables, `points` says how configurations are drawn, `record` simulates federations
and keeps each as it ends, `recorded/` holds the tables (the format is `analysis.curve_table`).
`benchmarks.replay` replays searches on them.
"""
