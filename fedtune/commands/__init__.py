"""One file per sub-command; `fedtune.cli` finds them by their names."""
