"""A body in ten lines, as a newcomer would add it: y = b + U (the mean of the context's features)."""

from __future__ import annotations

import dataclasses

from nplm_jax.models.body import Body, BodyOutput, windows
from nplm_jax.nn import uniform


@dataclasses.dataclass(frozen=True)
class BagOfFeatures(Body):
    """The order of the words before is lost."""

    n: int = 5
    m: int = 10

    @property
    def reach(self):
        """The words of a context."""
        return self.n - 1

    @property
    def widths(self):
        """U multiplies the mean."""
        return {'U_VxM': self.m}

    def init(self, key, vocabulary_size):
        """Returns C."""
        return {'C_VxM': uniform(key, (vocabulary_size, self.m), 0.1)}

    def features(self, params, e_SxLxM, state, keys=None, starts_SxL=None):
        """Returns the means, S x T x M."""
        return BodyOutput({'U_VxM': windows(e_SxLxM, self.reach, starts_SxL).mean(axis=2)})
