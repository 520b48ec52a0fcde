"""The same numbers as PyTorch's own operations, faster on a CPU. Each file holds a plain reference that a test compares it with."""
