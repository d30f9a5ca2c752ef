"""Weightings by name."""

from lntrust.randomness import Seeds
from lntrust.weighting.base import Weighting
from lntrust.weighting.baselines import BestSingle, FedFomo, Uniform
from lntrust.weighting.linucb import LinUCB
from lntrust.weighting.mlp import TrustNetwork
from lntrust.weighting.multiplicative import Hedge, WeightedMajority
from lntrust.weighting.simplex import SimplexERM

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
