"""The run directory, written."""
