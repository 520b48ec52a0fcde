"""Cores, GPUs, and a Ray of our own."""
