"""The same numbers as PyTorch's own operations, faster on a CPU. Each file holds or names a plain reference that a test
compares it with."""
