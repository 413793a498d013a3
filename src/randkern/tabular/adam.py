"""Adam: descent on a loss of other rows in each step."""

from __future__ import annotations

import numpy as np


class Adam:
    """The path of Adam (Kingma & Ba 2015) in θ, between bounds.

    Steps have about the length 0.15, in logarithms, which changes a lengthscale by a
    sixth; in the second half of the path they get shorter. Running means of gradients
    and of their squares decay as usual, but the squares faster (0.99), as a path has
    some 40 steps.
    """

    def __init__(
        self, theta: np.ndarray, low: np.ndarray, high: np.ndarray, steps: int
    ):
        self.theta, self.low, self.high, self.steps = theta, low, high, steps
        self._slope, self._square, self._taken = 0.0 * theta, 0.0 * theta, 0

    def step(self, gradient: np.ndarray) -> None:
        """Move θ against the gradient of a loss there."""
        left = min(1.0, 2 * (1 - self._taken / self.steps))
        self._taken += 1
        self._slope += (1 - 0.9) * (gradient - self._slope)
        self._square += (1 - 0.99) * (gradient**2 - self._square)
        size = np.sqrt(self._square / (1 - 0.99**self._taken)) + 1e-12
        step = self._slope / (1 - 0.9**self._taken) / size
        self.theta = np.clip(self.theta - 0.15 * left * step, self.low, self.high)
