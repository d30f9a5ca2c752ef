"""Whom to trust how far: the trust network and its rivals, behind one protocol."""

from lntrust.trust.rivals.base import Weighting
from lntrust.trust.rivals.mlp import PRIORS
from lntrust.trust.rivals.registry import WEIGHTINGS, make_weighting

__all__ = ["PRIORS", "WEIGHTINGS", "Weighting", "make_weighting"]
