"""`python -m fedtune` is the command line."""

from __future__ import annotations

from fedtune.cli import main

if __name__ == "__main__":
    main()
