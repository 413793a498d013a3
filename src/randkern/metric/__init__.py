"""Metrics learned from labels, by average gradient outer products."""

from randkern.metric.learner import MetricLearner

__all__ = ["MetricLearner"]
