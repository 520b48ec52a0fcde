"""Searchers of other packages, each in a process and an environment of its own, as `benchmarks.replay.peer` asks.

A file here imports its package, numpy, and those parts of ours that need nothing else."""
