"""Whose answers count how much, as the last refresh has found; and what of that holds after a change."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from numpy import ndarray

from lntrust.methods.base import Tensors, below
from lntrust.methods.lntrust.state import TrustState
from lntrust.trust.weights import Memory


@dataclass(frozen=True)
class Trust:
    """What the last refresh has found, for those who answer clients. Never changed, only replaced."""

    votes: dict[str, Float[ndarray, "*C"]] = field(default_factory=dict)  # a number, or one per class
    weights: dict[str, float] = field(default_factory=dict)  # α, the node itself included
    together: bool = False  # whether to answer with the ensemble
    strength: float | None = None  # λ_eff
    validation: dict[str, float] = field(default_factory=dict)
    typical_margin: float | None = None  # of the likeliest class in neighbours' replies
    probed: dict[str, int] = field(default_factory=dict)  # the version of each model that was probed

    @classmethod
    def of(cls, state: TrustState, members: Sequence[str], probed: dict[str, int]) -> "Trust":
        """Column k of the method's state is members[k]; the first is the node itself."""
        votes, own, ensemble = state.closed_votes[0].numpy(), *state.validated[0].tolist()
        return cls(
            votes={name: votes[k].copy() for k, name in enumerate(members)},
            weights=dict(zip(members, state.closed[0].tolist(), strict=True)),
            together=bool(state.together[0]),
            strength=float(state.strength[0]),
            validation={"self": own, "ensemble": ensemble},
            typical_margin=None if state.typical_margin is None else float(state.typical_margin[0]),
            probed=probed,
        )


def still_valid(
    saved: Tensors, *, same_model: bool, same_weighting: bool, same_neighbours: bool, same_data: bool
) -> tuple[TrustState | None, Memory | None]:
    """The method's state, if all is as it was; else only the trust model, if the same weighting reads it.

    Columns stand for neighbours, in their order: with other neighbours no column, weight or reply is kept, or
    it would be taken for somebody else's. With other data weights are learned anew, and replies that name
    examples of the old data mean nothing. A trust model fits any neighbours.
    """
    if not same_weighting or not saved:
        return None, None
    memory = below("memory/", saved) or None
    if same_model and same_neighbours and same_data and "open" in saved:
        return TrustState.from_tensors(saved), memory
    return None, memory
