"""Whose answers count how much, as the last refresh has found; and which parts of that outlive a change."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from numpy import ndarray

from lntrust.learners import Population
from lntrust.methods import State
from lntrust.methods.lntrust.settings import LNTrustSettings

# Of the method's state: the trust model, which fits any circle; and what belongs to the node's own model, a
# twin that never learned from neighbours and the doubt that it has raised.
_ANY_CIRCLE = ("memory/",)
_OF_THE_MODEL = ("twin/", "doubt", "undone")
# Probes that are remembered so as not to ask everybody each time: after a restart everybody is asked.
_OF_THE_DAY = ("probe/",)
OF_ANOTHER_MODEL = ("pseudo/", *_OF_THE_MODEL)  # of no use to a model that takes this one's place


@dataclass(frozen=True)
class Trust:
    """What the last refresh has found: whose answers count how much. Never changed, only replaced."""

    votes: dict[str, Float[ndarray, "*C"]] = field(default_factory=dict)  # a number, or one per class
    weights: dict[str, float] = field(default_factory=dict)  # α, the node itself included
    together: bool = False  # whether to answer with the ensemble
    strength: float | None = None  # λ_eff
    validation: dict[str, float] = field(default_factory=dict)
    typical_margin: float | None = None  # of the likeliest class in neighbours' replies
    probed: dict[str, int] = field(default_factory=dict)  # the version of each model that was probed

    @classmethod
    def of(cls, state: State, members: Sequence[str], probed: dict[str, int]) -> "Trust":
        """Column k of the method's state is members[k]; the first is the node itself."""
        votes, closed = state["closed votes"][0].numpy(), state["closed"][0].tolist()
        validated = state["validated"][0].tolist()
        return cls(
            votes={name: votes[k].copy() for k, name in enumerate(members)},
            weights=dict(zip(members, closed, strict=True)),
            together=bool(state["answers together"][0]),
            strength=float(state["lambda"][0]),
            validation={"self": validated[0], "ensemble": validated[1]},
            typical_margin=float(state["typical margin"][0]) if "typical margin" in state else None,
            probed=probed,
        )


def still_true(
    state: State, *, same_model: bool, same_weighting: bool, same_circle: bool, same_data: bool
) -> State:
    """What of a kept state holds although something has changed since.

    Columns stand for neighbours, in their order: of another circle no column, weight or reply is kept, or it
    would be taken for somebody else's. With other data weights are learned anew, and replies that name
    examples of the old data mean nothing.
    """
    kept = dict(state)
    if not (same_circle and same_model and same_weighting and same_data):
        kept = only(kept, *_ANY_CIRCLE, *_OF_THE_MODEL)
    if not same_model:
        kept = without(kept, *_OF_THE_MODEL)
    if not same_weighting:  # what one remembers, another cannot read
        kept = without(kept, *_ANY_CIRCLE)
    return without(kept, *_OF_THE_DAY)


def with_twin(state: State, population: Population, settings: LNTrustSettings) -> State:
    """A node that looks back and has no twin (its model was put in, say) looks back as far as to here."""
    if settings.look_back is None or not state or any(name.startswith("twin/") for name in state):
        return state
    return state | {f"twin/{name}": tensor.clone() for name, tensor in population.state().items()}


def asked_again(state: State) -> State:
    """Replies of nobody are not remembered for K rounds: those who were away may be there in the next."""
    nobody = "recall/column" in state and not bool(state["recall/column"].any())
    return without(state, "recall/") if nobody else state


def only(state: State, *names: str) -> State:
    return {name: tensor for name, tensor in state.items() if name.startswith(names)}


def without(state: State, *names: str) -> State:
    return {name: tensor for name, tensor in state.items() if not name.startswith(names)}
