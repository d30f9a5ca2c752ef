"""A deployed node's answer with those it trusts: all asked at once, or one after another until it is sure.

The rule is `trust.blend`'s, with neighbours that may be away: what was not heard counts for nothing, and its
weight is no longer waited for.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.messages import Failure, Reply
from lntrust.methods.lntrust.state import TrustState
from lntrust.trust.blend import AskInTurn, made_up, or_alone

_NEGLIGIBLE = 1e-5  # whose weight is below this is not asked: nobody would notice the answer
# Asks names about inputs, with a timeout in seconds: who has answered, and who has not, and why.
Ask = Callable[..., tuple[dict[str, Reply], dict[str, Failure]]]
Which = Literal["ensemble", "self"]


@dataclass(frozen=True)
class Prediction:
    """An answer, and who is behind it.

    A node that asks one after another (trust.certainty) asks not everybody about every input: a weight is
    then the mean over all inputs, 0 for those that somebody was not asked about.
    """

    probabilities: Float[ndarray, "m C"]
    weights: dict[str, float]  # of all who answered, the node itself included; they sum to 1
    versions: dict[str, int]  # of their models
    silent: dict[str, str]  # who was asked and did not answer in time, and why


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


def answer_together(
    trust: Trust,
    alone: Prediction,
    x: Shaped[ndarray, "m *s"],
    ask: Ask,
    seconds: float,
    certainty: float | None = None,
) -> Prediction:
    """Σ_j α_ij p_j(x) over all who answer; with a certainty, of no more neighbours than each input needs.

    In turn, one that keeps silent has cost half of the time that was left: from then on all others are asked
    at once.
    """
    if not len(x):
        return alone
    deadline = time.monotonic() + seconds
    ((me, version),) = alone.versions.items()
    own = alone.probabilities.astype(np.float64)
    waiting = [n for n, vote in trust.votes.items() if n in trust.probed and np.any(vote > _NEGLIGIBLE)]
    if certainty is not None:
        waiting.sort(key=lambda name: -float(trust.votes[name]))
    row = {name: k for k, name in enumerate((me, *waiting))}
    alpha = _weights(trust, list(row))
    knows = wire.are_probabilities(own)  # else its own model has come to grief; others may know
    answer = AskInTurn(alpha[0] * own if knows else np.zeros_like(own), float(alpha[0].mean()), certainty)
    about = np.zeros((len(row), len(x)), dtype=bool)  # which inputs each has answered
    about[0] = knows
    versions, silent, together = {me: version} if knows else {}, dict[str, str](), certainty is None
    while waiting and (open_ := answer.asking).any():
        turn = waiting if together else waiting[:1]
        time_left = deadline - time.monotonic()
        if time_left <= 0:
            silent |= dict.fromkeys(waiting, "no time left to ask it")
            break
        share = 1.0 if len(turn) == len(waiting) else 0.5
        heard, failed = ask(turn, x[open_], timeout=share * time_left)
        silent |= {name: failure.text for name, failure in failed.items()}
        theirs = np.zeros_like(own)
        for name, reply in heard.items():
            probed = trust.probed[name]
            if reply.version < probed:  # trust was learned on a model that it has no more
                silent[name] = f"its model is older ({reply.version}) than the one probed ({probed})"
                continue
            theirs[open_] += alpha[row[name]] * reply.probabilities
            about[row[name]], versions[name] = open_, reply.version
        answer.hear(theirs, sum(float(alpha[row[name]].mean()) for name in turn))
        waiting = waiting[len(turn) :]
        together = together or any(failure.kind == "silent" for failure in failed.values())
    # Rows sum to 1, and everybody's weight is a mean; it is the node itself where nobody of weight answered.
    p = made_up(answer.blend, np.einsum("km,kc->mc", about, alpha))
    nobody = p.sum(1) <= 0
    p = or_alone(p, alone.probabilities)
    p /= np.where(nobody, 1.0, p.sum(1))[:, None]
    mass = alpha.mean(1)[:, None] * (about & ~nobody)
    shares = (mass / np.where(nobody, 1.0, mass.sum(0))).mean(1)
    shares[0] += nobody.mean()
    weights = {name: float(share) for name, share in zip(row, shares, strict=True) if share > 0}
    versions = {me: version} | versions if nobody.any() else versions
    return Prediction(p.astype(np.float32), weights, versions, silent)


def _weights(trust: Trust, names: list[str]) -> Float[ndarray, "k #C"]:
    """α of these, summing to 1, for each class if they differ by class; all the first's, if none has any."""
    votes = np.stack([np.atleast_1d(np.asarray(trust.votes[name], dtype=np.float64)) for name in names])
    total = votes.sum(0)
    if not (total > 0).any():
        votes[0] = total = np.ones_like(total)
    alpha: Float[ndarray, "k #C"] = np.divide(votes, total, out=np.zeros_like(votes), where=total > 0)
    return alpha
