"""One federated method per file; `trainables.registry` finds them by their `METHOD`."""
