"""Whom to trust how far: the trust network and its rivals, behind one protocol."""

from lntrust.weighting.base import Weighting
from lntrust.weighting.registry import WEIGHTINGS, make_weighting

__all__ = ["WEIGHTINGS", "Weighting", "make_weighting"]
