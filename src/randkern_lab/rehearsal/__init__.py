"""A rehearsal of what users do, on tables of real size, before a release."""
