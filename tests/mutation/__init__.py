"""Mutation testing: small wrong steps are made in the code one at a time, and for each some test has to fail.

    python -m tests.mutation [--sample N] [FILE…]     `make mutants` calls it

`operators` finds what can be changed in a file, `selection` says which files are mutated and which tests are asked
about a change, `trials` asks them in forks, `report` counts. What survives and why that does not matter is in
`survivors.toml`.

Two libraries were tried on these files. cosmic-ray 8.7 has operators for a good half of these mutants: it swaps no
arguments, drops no statement and no keyword, knows neither `.detach()` nor mean and sum, starts a new process with the
same tests for each mutant, and has neither a sample nor a list of survivors. mutmut 3.8 forks and knows which functions
a test calls, but runs all tests one after another before the first mutant, changes no property and nothing at the level
of modules and classes, has no interface for operators of one's own or for what is to be left alone (`strict=True`,
messages), and numbers its mutants, so that after a change of a function a list of survivors would name others.
"""
