"""Mutation testing: small wrong steps are made in the code one at a time, and for each some test has to fail.

    python -m tests.mutation record                  which tests run which statements, into `tests.json.xz`
    python -m tests.mutation run [--sample N] [FILE…]  tries the mutants and reports; `make mutants` calls it

`targets` says which files are mutated, `operators` what is changed in them, `selection` which tests are asked about a
change, `swap` puts a change into a process, `processes` and `trials` try the mutants in forks of a process that has
everything imported, `report` counts. What survives and why that does not matter is in `survivors.toml`.

Neither mutmut 3.8 nor cosmic-ray 8.7 does this here. mutmut forks a warm process as well, but leaves out decorated
functions, class bodies and module level, knows neither `.detach()` nor mean and sum nor dropped statements, has no list
of survivors with reasons and no sample. cosmic-ray starts a process for every mutant and runs the same tests for all.
"""
