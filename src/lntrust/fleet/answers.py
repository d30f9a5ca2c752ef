"""A deployed node's answer with those it trusts: all asked at once, or one after another until it is sure.

The rule is `trust.blend`'s, with neighbours that may be away: what was not heard counts for nothing, and its
weight is no longer waited for.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Shaped
from numpy import ndarray

from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.messages import Failure, Reply
from lntrust.fleet.status import Prediction
from lntrust.fleet.training.trust_state import Trust
from lntrust.trust.blend import AskInTurn, made_up, or_alone

_NEGLIGIBLE = 1e-5  # whose weight is below this is not asked: nobody would notice the answer
# Asks these about inputs, within so many seconds.
Ask = Callable[[Sequence[str], ndarray, float], tuple[dict[str, Reply], dict[str, Failure]]]


def members(trust: Trust) -> list[str]:
    """The neighbours that are worth asking, in the order of NODE.toml."""
    return [n for n, vote in trust.votes.items() if n in trust.probed and bool(np.any(vote > _NEGLIGIBLE))]


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
    waiting, own = members(trust), alone.probabilities.astype(np.float64)
    if certainty is not None:
        waiting = sorted(waiting, key=lambda name: -float(trust.votes[name]))
    alpha = _weights(trust, [me, *waiting])
    knows = wire.are_probabilities(own)  # else its own model has come to grief; others may know
    answer = AskInTurn(alpha[me] * own if knows else np.zeros_like(own), float(alpha[me].mean()), certainty)
    about = {me: np.full(len(x), knows)}  # which inputs each has answered
    versions, silent, together = {me: version} if knows else {}, dict[str, str](), certainty is None
    while waiting and (open_ := answer.asking).any():
        turn = waiting if together else waiting[:1]
        time_left = deadline - time.monotonic()
        if time_left <= 0:
            silent |= dict.fromkeys(waiting, "no time left to ask it")
            break
        share = 1.0 if len(turn) == len(waiting) else 0.5
        heard, failed = ask(turn, x[open_], share * time_left)
        said, new, why = _usable(trust, heard, failed)
        theirs = np.zeros_like(own)
        theirs[open_] = sum((alpha[name] * p for name, p in said.items()), np.zeros(1))
        for name in said:
            about[name] = open_
        answer.hear(theirs, sum(float(alpha[name].mean()) for name in turn))
        versions, silent, waiting = versions | new, silent | why, waiting[len(turn) :]
        together = together or any(failure.kind == "silent" for failure in failed.values())
    return _prediction(alpha, alone, answer.blend, about, versions, silent)


def _weights(trust: Trust, names: Sequence[str]) -> dict[str, Float[ndarray, "*C"]]:
    """α of these, scaled to sum to 1, for each class if they differ by class."""
    votes = {name: np.asarray(trust.votes[name], dtype=np.float64) for name in names}
    total = np.asarray(sum(votes.values()))
    if not bool((total > 0).any()):
        return {name: np.asarray(1.0 if name == names[0] else 0.0) for name in names}
    return {
        name: np.divide(vote, total, out=np.zeros_like(total), where=total > 0)
        for name, vote in votes.items()
    }


def _prediction(
    alpha: dict[str, Float[ndarray, "*C"]],
    alone: Prediction,
    blend: Float[ndarray, "m C"],
    about: dict[str, Bool[ndarray, "m"]],
    versions: dict[str, int],
    silent: dict[str, str],
) -> Prediction:
    """Rows that sum to 1, and everybody's mean weight; the node itself where nobody of weight answered."""
    ((me, version),) = alone.versions.items()
    heard = np.sum([alpha[name] * which[:, None] for name, which in about.items()], axis=0)
    p = made_up(blend, heard)
    nobody = p.sum(1) <= 0
    p = or_alone(p, alone.probabilities)
    mass = {name: alpha[name].mean() * (which & ~nobody) for name, which in about.items()}
    every = np.where(nobody, 1.0, sum(mass.values(), np.zeros(len(p))))
    weights = {name: float((each / every).mean()) for name, each in mass.items()}
    if nobody.any():
        weights[me] += float(nobody.mean())
        versions = {me: version} | versions
    weights = {name: weight for name, weight in weights.items() if weight > 0}
    total = np.where(nobody, 1.0, p.sum(1))[:, None]
    return Prediction((p / total).astype(np.float32), weights, versions, silent)


def _usable(
    trust: Trust, heard: dict[str, Reply], failed: dict[str, Failure]
) -> tuple[dict[str, Float[ndarray, "m C"]], dict[str, int], dict[str, str]]:
    """What was said, by which version of a model; and why others are silent."""
    silent = {name: failure.text for name, failure in failed.items()}
    said, versions = {}, {}
    for name, reply in heard.items():
        probed = trust.probed[name]
        if reply.version < probed:  # trust was learned on a model that it has no more
            silent[name] = f"its model is older ({reply.version}) than the one probed ({probed})"
        else:
            said[name], versions[name] = reply.probabilities, reply.version
    return said, versions, silent
