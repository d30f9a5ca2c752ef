"""Whom to trust how far: the trust network and its rivals, behind one protocol."""

from lntrust.weighting.base import Weighting
from lntrust.weighting.mlp import PRIORS
from lntrust.weighting.registry import WEIGHTINGS, make_weighting

__all__ = ["PRIORS", "WEIGHTINGS", "Weighting", "make_weighting"]
