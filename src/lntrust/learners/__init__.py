"""What a node can be: it answers, it learns."""

from lntrust.learners.batch import Batch, Labelled
from lntrust.learners.population import Population

__all__ = ["Batch", "Labelled", "Population"]
