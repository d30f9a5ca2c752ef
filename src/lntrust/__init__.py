"""Learned Neighbor Trust: nodes that learn whom to ask."""

from lntrust.core.errors import LNTrustError
from lntrust.study.loading import Study, load_study

__version__ = "0.1.0"
__all__ = ["LNTrustError", "Study", "__version__", "load_study"]
