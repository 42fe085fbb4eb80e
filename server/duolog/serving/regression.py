"""Recursive least squares: a linear model that learns from one observation after another. Pure.

Ljung and Söderström, *Theory and Practice of Recursive Identification* (1983), with forgetting, errors relative to the
prediction, outliers clipped (Huber) and weights that cannot be negative: every weight here is a cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

RELATIVE_NOISE = 0.2
"""Share of a prediction by which a single observation is off although the model is right."""
FORGETTING = 0.98
"""Weight of the past at each observation: the last 50 count."""
OUTLIER = 3.0
"""An error this many times as large as errors usually are counts as no more."""
LEAST_USUAL_ERROR = 0.1
"""However well it predicts: an engine that has changed is no outlier."""
ERROR_SHARE = 0.05
"""Of the newest error in the running mean of errors."""


class OnlineRegression:
    """Predicts a positive quantity as a weighted sum of features. Not for use from several threads."""

    def __init__(self, start: Sequence[float], spread: Sequence[float], floor: float) -> None:
        """`start` are the weights before anything was seen, `spread` how far off each may be; predictions are at
        least `floor`."""
        self._weights: Vector = np.asarray(start, np.float64)
        self._prior: Vector = np.diag(np.square(np.asarray(spread, np.float64) / RELATIVE_NOISE))
        self._covariance: Vector = self._prior.copy()
        self._floor = floor
        self._usual_error = 10.0
        self.seen = 0

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(float(weight) for weight in self._weights)

    def predict(self, features: Sequence[float]) -> float:
        return max(self._floor, float(self._weights @ np.asarray(features, np.float64)))

    def learn(self, features: Sequence[float], actual: float) -> None:
        """One observation; errors count relative to what was predicted or seen, whichever is more."""
        scale = 1.0 / max(self.predict(features), actual)
        scaled: Vector = np.asarray(features, np.float64) * scale
        error = actual * scale - float(self._weights @ scaled)
        limit = OUTLIER * max(self._usual_error, LEAST_USUAL_ERROR)
        self._usual_error += ERROR_SHARE * (min(abs(error), 2 * limit) - self._usual_error) if self.seen else 0.0
        if not self.seen:
            self._usual_error = max(abs(error), RELATIVE_NOISE)
        spread = self._covariance @ scaled
        gain = spread / (FORGETTING + float(scaled @ spread))
        self._weights = np.maximum(self._weights + gain * float(np.clip(error, -limit, limit)), 0.0)
        self._covariance = (self._covariance - np.outer(gain, spread)) / FORGETTING
        self._bound_covariance()
        self.seen += 1

    def _bound_covariance(self) -> None:
        """Forgetting blows up what nothing is learnt about: no weight is ever less certain than at the start."""
        excess = np.sqrt(np.maximum(1.0, np.diag(self._covariance) / np.diag(self._prior)))
        self._covariance /= np.outer(excess, excess)
        self._covariance = (self._covariance + self._covariance.T) / 2
