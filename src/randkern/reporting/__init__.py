"""A self-contained HTML report on a fitted tabular model."""
