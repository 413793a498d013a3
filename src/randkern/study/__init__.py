"""What ``randkern compare`` and ``randkern tune`` do, on a user's own data."""
