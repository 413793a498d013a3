"""Benchmarks, one file each: seconds, memory and accuracy beside peers."""
