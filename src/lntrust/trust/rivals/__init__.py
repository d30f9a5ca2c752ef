"""Learned trust and its rivals, by name: all see the same evidence, and drive the same gates and answers."""

from lntrust.core.randomness import Seeds
from lntrust.trust.fit import TrustNetwork
from lntrust.trust.rivals.baselines import BestSingle, FedFomo, Uniform
from lntrust.trust.rivals.linucb import LinUCB
from lntrust.trust.rivals.multiplicative import Hedge, WeightedMajority
from lntrust.trust.rivals.simplex import SimplexERM
from lntrust.trust.weights import Weighting

WEIGHTINGS: dict[str, type[Weighting]] = {
    "trust": TrustNetwork,
    "simplex_erm": SimplexERM,
    "hedge": Hedge,
    "weighted_majority": WeightedMajority,
    "linucb": LinUCB,
    "uniform": Uniform,
    "best_single": BestSingle,
    "fedfomo": FedFomo,
}


def make_weighting(
    name: str, seed: int | Seeds, prior: str = "none", prior_examples: float = 10.0
) -> Weighting:
    """The weighting of this name; its draws come from the run's seed. Only learned trust has a prior."""
    kind = WEIGHTINGS[name]
    if issubclass(kind, TrustNetwork):
        return kind(seed, prior, prior_examples)
    return kind(seed)
