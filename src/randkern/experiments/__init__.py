"""Experiments: what is measured, and what is written down about it."""
