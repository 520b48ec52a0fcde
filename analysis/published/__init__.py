"""What the papers printed: one file of numbers per table, and how ours are compared with them."""
