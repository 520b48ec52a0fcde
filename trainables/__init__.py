"""Federated learning on PyTorch: methods, models, data, and the simulation of one federation."""
