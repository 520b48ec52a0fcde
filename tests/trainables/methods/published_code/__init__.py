"""Methods against the code that others have published: the same weights, clients and batches, and the same result.

The replays beside this folder follow the equations in our own docstrings. Here the plain loops follow somebody else's
program, step by step in its order, so that whatever is done otherwise here must be a setting, or a difference that the
method's docstring names. Where a named difference cannot be switched off, the loop has our term in its place, and says
so. Nothing is copied: the loops are written anew, with PyTorch's operations and automatic differentiation.
"""
