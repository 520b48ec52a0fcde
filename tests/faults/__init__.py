"""The fault campaign: a real search on a toy data set, one fault at a time, and what must come of it.

    make faults                                  all of it, at random moments from a printed seed
    make faults SEED=7 ONLY="worker"             the cases whose names hold a word
    python -m tests.faults list                  the table of what must come of what

A case is a function in `cases`, registered with what must come of it: `equal` (the run, resumed where it needs that, is
the run that nothing had disturbed) or `refused` (one sentence, and no file of the run directory is another one).
"""
