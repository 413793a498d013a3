"""Implementation of ``randkern compare``."""
