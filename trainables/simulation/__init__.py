"""One federation, simulated round by round: its data, the round loop, executors, evaluation, checkpoints."""
