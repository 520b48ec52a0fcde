"""The same FedAvg round by other simulators. These files run in environments of their own (`scripts/bench_peers.sh`),
where nothing of ours is installed; they use numpy, PyTorch and the simulator, and take turns like every other arm (see
`benchmarks.worker`)."""
