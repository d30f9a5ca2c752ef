"""A deployed node's answer with those it trusts: all asked at once, or one after another until it is sure.

One after another is `trust.asking`, with neighbours that may be away: what was not heard counts for nothing,
and its weight is no longer waited for.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Shaped
from numpy import ndarray

from lntrust.fleet.http.service import Prediction
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.neighbour import Failure, Heard
from lntrust.fleet.training.trust_state import Trust

_NEGLIGIBLE = 1e-5  # whose weight is below this is not asked: nobody would notice the answer
# Asks these about inputs, within so many seconds.
Ask = Callable[[Sequence[str], ndarray, float], tuple[dict[str, Heard], dict[str, Failure]]]


def members(trust: Trust) -> list[str]:
    """The neighbours that are worth asking, in the order of NODE.toml."""
    return [n for n, vote in trust.votes.items() if n in trust.probed and bool(np.any(vote > _NEGLIGIBLE))]


def all_at_once(
    trust: Trust, alone: Prediction, x: Shaped[ndarray, "m *s"], ask: Ask, seconds: float
) -> Prediction:
    """Σ_j α_ij p_j(x) over all who answer."""
    ((me, version),) = alone.versions.items()
    said, versions, silent = _usable(trust, *ask(members(trust), x, seconds))
    if wire.are_probabilities(alone.probabilities):  # else its own model has come to grief; others may know
        said, versions = {me: alone.probabilities} | said, {me: version} | versions
    mix = blended(trust.votes, said)
    if mix is None:
        return Prediction(alone.probabilities, alone.weights, alone.versions, silent)
    return Prediction(mix[0], mix[1], versions, silent)


def one_by_one(
    trust: Trust, alone: Prediction, x: Shaped[ndarray, "m *s"], ask: Ask, seconds: float, certainty: float
) -> Prediction:
    """The same of no more neighbours than each input needs, in the order of their weight.

    They are enough when the likeliest class leads by `certainty` times the weight of those not yet asked. One
    that keeps silent has cost half of the time that was left: from then on the others are asked at once.
    """
    deadline = time.monotonic() + seconds
    ((me, version),) = alone.versions.items()
    waiting = sorted(members(trust), key=lambda name: -float(trust.votes[name]))
    scale = sum(float(trust.votes[name]) for name in (me, *waiting))
    alpha = {name: float(trust.votes[name]) / scale for name in (me, *waiting)} if scale > 0 else {me: 1.0}
    own = alone.probabilities
    blend, left = np.zeros(own.shape, dtype=np.float64), 1.0 - alpha[me]
    about: dict[str, Bool[ndarray, "m"]] = {}  # which inputs each has spoken about
    versions, silent, hurried = dict[str, int](), dict[str, str](), False
    if wire.are_probabilities(own):
        blend += alpha[me] * own
        about[me], versions[me] = np.ones(len(x), dtype=bool), version
    while waiting and (open_ := ~(_lead(blend) > certainty * left)).any():
        turn = waiting if hurried else waiting[:1]
        time_left = deadline - time.monotonic()
        if time_left <= 0:
            silent |= dict.fromkeys(waiting, "no time left to ask it")
            break
        share = 1.0 if len(turn) == len(waiting) else 0.5
        heard, failed = ask(turn, x[open_], share * time_left)
        said, new, why = _usable(trust, heard, failed)
        for name, p in said.items():
            blend[open_] += alpha[name] * p
            about[name] = open_
        left -= sum(alpha[name] for name in turn)
        versions, silent, waiting = versions | new, silent | why, waiting[len(turn) :]
        hurried = hurried or any(failure.kind == "silent" for failure in failed.values())
    return _whole(alpha, alone, blend, about, versions, silent)


def _whole(
    alpha: dict[str, float],
    alone: Prediction,
    blend: Float[ndarray, "m C"],
    about: dict[str, Bool[ndarray, "m"]],
    versions: dict[str, int],
    silent: dict[str, str],
) -> Prediction:
    """Rows scaled to sum to 1, and everybody's mean weight; the node itself where nobody of weight spoke."""
    ((me, version),) = alone.versions.items()
    total = blend.sum(1)
    nobody = total <= 0
    p = np.where(nobody[:, None], alone.probabilities, blend / np.where(nobody, 1.0, total)[:, None])
    mass = {name: alpha[name] * (which & ~nobody) for name, which in about.items()}
    every = np.where(nobody, 1.0, sum(mass.values(), np.zeros(len(p))))
    weights = {name: float((each / every).mean()) for name, each in mass.items()}
    if nobody.any():
        weights[me] = weights.get(me, 0.0) + float(nobody.mean())
        versions = {me: version} | versions
    weights = {name: weight for name, weight in weights.items() if weight > 0}
    return Prediction(p.astype(np.float32), weights, versions, silent)


def _usable(
    trust: Trust, heard: dict[str, Heard], failed: dict[str, Failure]
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


def _lead(blend: Float[ndarray, "m C"]) -> Float[ndarray, "m"]:
    """By how much the likeliest class leads the second."""
    second, first = np.partition(blend, -2, axis=1)[:, -2:].T
    return np.asarray(first - second)


def blended(
    votes: dict[str, Float[ndarray, "*C"]], said: dict[str, Float[ndarray, "m C"]]
) -> tuple[Float[ndarray, "m C"], dict[str, float]] | None:
    """Σ_j α_ij p_j(x) over those who answered, scaled to sum to 1, and their weights; none: all weigh 0."""
    total = sum(np.asarray(votes[name], dtype=np.float64) * p for name, p in said.items())
    mass = {name: float(np.mean(votes[name])) for name in said}
    if isinstance(total, ndarray) and any(np.ndim(votes[name]) for name in said):  # a weight for every class
        left = sum(np.asarray(votes[name], dtype=np.float64) for name in said)
        total = np.divide(total, left, out=np.zeros_like(total), where=left > 0)
    if not isinstance(total, ndarray) or sum(mass.values()) <= 0 or not bool((total.sum(1) > 0).all()):
        return None
    weights = {name: weight / sum(mass.values()) for name, weight in mass.items()}
    return (total / total.sum(1, keepdims=True)).astype(np.float32), weights
