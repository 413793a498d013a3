"""Implementation of ``randkern compare`` and ``randkern tune``."""
