"""A minimal body, written as a user's plug-in: y = b + U (the mean of the context's features)."""

from __future__ import annotations

import dataclasses

from nplm_jax.models.body import Body, BodyOutput, windows
from nplm_jax.nn import uniform


@dataclasses.dataclass(frozen=True)
class BagOfFeatures(Body):
    """A body that ignores the order of the context words."""

    n: int = 5
    m: int = 10

    @property
    def reach(self):
        """The number of context words."""
        return self.n - 1

    @property
    def widths(self):
        """The width of U, which multiplies the mean."""
        return {'U_VxM': self.m}

    def init(self, key, vocabulary_size):
        """Returns the only parameter, C."""
        return {'C_VxM': uniform(key, (vocabulary_size, self.m), 0.1)}

    def features(self, params, e_SxLxM, state, keys=None, starts_SxL=None):
        """Returns the mean features of each context, S x T x M."""
        return BodyOutput({'U_VxM': windows(e_SxLxM, self.reach, starts_SxL).mean(axis=2)})
