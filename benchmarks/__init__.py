"""Benchmarks: ratios against plain reference loops that are kept here, measured side by side in one run.

    python -m benchmarks list                  # the cases
    python -m benchmarks run [CASE …]          # all of them, or some; --quick only tries them
    python -m benchmarks explained             # docs/explained: the pictures of noise, a race and early stopping
    python -m benchmarks page | record         # docs/performance.md, of what was recorded or of the newest results
    python -m benchmarks peers | pfllib | gpu  # against Flower and pfl-research; against PFLlib; on a GPU

`measure` starts every arm in a process of its own and lets them work in turn; `workloads` says what such a process
does; `reference` holds the plain loops. README.md says which goal measures what, and where results are.
"""
