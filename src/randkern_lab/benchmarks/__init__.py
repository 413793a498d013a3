"""Benchmarks of time, memory and accuracy against peers, one file each."""
