"""Replays: each method's rounds, once by the method, once by a plain loop written from the equations in its docstring.

The plain loops use PyTorch's operations and automatic differentiation, and nothing of `trainables` but the names of the
random streams and the initial weights. A correct equation that is given the wrong thing therefore shows.
`mutants` lists wrong steps and the replay that notices each of them; `test_mutants` makes them (marker `slow`).
"""
