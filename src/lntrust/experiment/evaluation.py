"""What nodes would answer on test inputs, stored as classes; labels come later, once."""

from collections import defaultdict

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lntrust.core.errors import LNTrustError
from lntrust.learners import Population
from lntrust.methods import Deployment
from lntrust.network import Network
from lntrust.trust.blend import AskInTurn, made_up, or_alone
from lntrust.world import World

_AT_ONCE = 8_000_000  # predictions are made in pieces of about this many numbers
Said = Float[Tensor, "n U C"]  # every node's probabilities for its world's test inputs


def test_inputs(world: World) -> Int[np.ndarray, "U"]:
    """The union of all nodes' test sets, every example once."""
    return np.unique(world.partition.test.values)


def answers(
    population: Population, network: Network, deployment: Deployment, examples: Int[Tensor, "*worlds U"]
) -> dict[str, Int[Tensor, "n U"]]:
    """Predicted classes of every node on its world's test inputs: `self`, `deployed`, and the variants'.

    Where neighbours are asked one after another there is also `asked`: how many of them, for each input.
    `finite` says of which nodes all probabilities are, alone and deployed.
    """
    ways = {"deployed": deployment, **{f"variant/{k}": v for k, v in deployment.variants.items()}}
    mixes = {name: None if way.combine else mixing(way, population) for name, way in ways.items()}
    out: dict[str, list[Tensor]] = defaultdict(list)
    finite = torch.ones(population.n, dtype=torch.bool, device=examples.device)
    weights = mixes["deployed"]
    if weights is not None:  # where they are not, `blended` lets a node answer by itself
        finite &= weights.isfinite().flatten(2).all(2).flatten()
    for piece in torch.split(examples, max(1, _AT_ONCE // (population.n * population.classes)), -1):
        main = _said(deployment, population, piece)
        out["self"].append(_classes(main))
        finite &= _finite(main)
        for name, way in ways.items():
            mix = mixes[name]
            blend = own = main if way.answer is deployment.answer else _said(way, population, piece)
            if way.combine is not None:
                blend = combined(way, own, network.heard(own), piece.expand(len(population.seeds), -1))
            elif mix is not None and way.certainty is None:
                blend = blended(own, network.heard(own), mix)
            elif mix is not None and way.certainty is not None:
                blend, asked = one_by_one(own, network.heard(own), mix, way.certainty)
                if way is deployment:
                    out["asked"].append(asked.to(torch.int16))
            if way.prior is not None:
                blend = blend * way.prior[:, None, :]
            if way is deployment and blend is not main:
                finite &= _finite(blend)
            out[name].append(out["self"][-1] if blend is main else _classes(blend))
    return {name: torch.cat(pieces, 1) for name, pieces in out.items()} | {"finite": finite}


def _said(way: Deployment, population: Population, examples: Int[Tensor, "*worlds U"]) -> Said:
    """Everybody's own answers, or what stands in for them."""
    if way.answer is None:
        return population.predict_all(examples)
    shape = (population.n, examples.shape[-1], population.classes)
    return _probabilities("answer", way.answer(examples), shape)


def _probabilities(field: str, said: object, shape: tuple[int, ...]) -> Tensor:
    """What a function of the method has returned, if it has this shape."""
    if not isinstance(said, Tensor) or said.shape != shape:
        got = list(said.shape) if isinstance(said, Tensor) else f"a {type(said).__name__}"
        raise LNTrustError(f"a Deployment's {field} returned {got}; must be probabilities {list(shape)}")
    return said


def mixing(deployment: Deployment, population: Population) -> Tensor | None:
    """A matrix [n, n] of weights for each world, or [n, n, C] where they differ by class; none: all alone."""
    n, (node, member), weights = population.seeds.n, deployment.members.unbind(1), deployment.weights
    if weights.ndim == 1 and bool((node == member).all()):
        return None
    worlds = len(population.seeds)
    matrix = torch.zeros(worlds, n, n, *weights.shape[1:], device=weights.device, dtype=weights.dtype)
    matrix.index_put_((node // n, node % n, member % n), weights, accumulate=True)
    rows = torch.bincount(node, minlength=worlds * n).view(worlds, n)
    world, alone = torch.nonzero(rows == 0, as_tuple=True)
    matrix[world, alone, alone] = 1.0
    return matrix


def blended(own: Said, heard: Said, mix: Tensor | None) -> Said:
    """p_i^deploy(x) = Σ_j α_ij p_j(x), of what neighbours are heard to say and the node knows itself.

    A neighbour that is not heard (0 everywhere) drops out and the others' weights make up for it: with one
    weight a member that is a common factor, which no argmax notices. See `trust.blend`.
    """
    if mix is None:
        return own
    worlds, n = mix.shape[:2]
    own_weight, others = _apart(mix)
    said = heard.view(worlds, n, *heard.shape[1:])
    if mix.ndim == 3:
        blend = own * own_weight[:, None, None] + torch.bmm(others, said.flatten(2)).view(own.shape)
        return torch.as_tensor(or_alone(blend, own))
    blend = own * own_weight[:, None, :] + torch.einsum("sijc,sjuc->siuc", others, said).reshape(own.shape)
    silent = said.sum(-1) <= 0
    if bool(silent.any()):
        missing = torch.einsum("sijc,sju->siuc", others, silent.to(others.dtype)).reshape(own.shape)
        whole = (own_weight + others.sum(2).flatten(0, 1))[:, None, :]
        blend = torch.where(missing > 0, whole * made_up(blend, whole - missing), blend)
    return torch.as_tensor(or_alone(blend, own))


def combined(way: Deployment, own: Said, heard: Said, examples: Int[Tensor, "worlds U"]) -> Said:
    """What each node makes of its members' answers, by the method's own function: it sees no others'."""
    assert way.combine is not None
    out, n = own.clone(), len(own) // len(examples)
    node, member = way.members[way.members[:, 0].argsort(stable=True)].unbind(1)
    rows = torch.split(member, torch.bincount(node, minlength=len(own)).tolist())
    for i, members in enumerate(rows):
        if len(members):
            said = torch.where((members == i)[:, None, None], own[i], heard[members])
            out[i] = _probabilities("combine", way.combine(i, said, examples[i // n]), out[i].shape)
    return out


def one_by_one(
    own: Said, heard: Said, mix: Float[Tensor, "s m m"], certainty: float | Float[Tensor, "n"]
) -> tuple[Said, Int[Tensor, "n U"]]:
    """The same, but neighbours are asked in the order of their weight, until the node is sure."""
    (worlds, n), shape = mix.shape[:2], own.shape[:2]
    own_weight, others = _apart(mix)
    weights, order = others.sort(dim=2, descending=True, stable=True)
    world, said = torch.arange(worlds, device=own.device)[:, None], heard.view(worlds, n, *heard.shape[1:])
    kappa = certainty[:, None] if isinstance(certainty, Tensor) else certainty
    answer = AskInTurn(own_weight[:, None, None] * own, own_weight[:, None].expand(shape), kappa)
    count = torch.zeros(shape, dtype=torch.int64, device=own.device)
    for k in range(int((weights > 0).sum(2).max())):
        weight = weights[:, :, k].flatten()[:, None].expand(shape)
        asked = answer.asking & (weight > 0)
        count += asked
        theirs = said[world, order[:, :, k]].view(own.shape)
        answer.hear(torch.where(asked, weight, 0.0)[..., None] * theirs, weight)
    return or_alone(answer.blend, own), count


def _apart(mix: Tensor) -> tuple[Float[Tensor, "n *C"], Tensor]:
    """Every node's weight for itself, and the matrix of the others'."""
    node = torch.arange(mix.shape[1], device=mix.device)
    others = mix.clone()
    others[:, node, node] = 0.0
    return mix[:, node, node].flatten(0, 1), others


def asked_on_average(asked: Int[Tensor, "n U"], world: World, inputs: Int[np.ndarray, "U"]) -> float:
    """Neighbours asked about an input of the node's own test set, the sum over all nodes of means."""
    test, table = world.partition.test, asked.cpu().numpy().astype(np.float64)
    place, count = np.searchsorted(inputs, test.values), np.bincount(test.owner, minlength=world.n)
    mine = np.bincount(test.owner, weights=table[test.owner, place], minlength=world.n)
    return float(np.where(count > 0, mine / np.maximum(count, 1), table.mean(1)).sum())


def _classes(probabilities: Said) -> Int[Tensor, "n U"]:
    small = probabilities.shape[-1] <= 256
    return probabilities.argmax(-1).to(torch.uint8 if small else torch.int16)


def _finite(probabilities: Said) -> Bool[Tensor, "n"]:
    """The largest is NaN where any is, and none of them is below zero."""
    return probabilities.amax(-1).isfinite().all(1)


def padded(lists: list[Int[np.ndarray, "_"]]) -> Int[np.ndarray, "worlds U"]:
    """Lists of different lengths as one table; the shorter ones are filled up with example 0."""
    return pad_sequence([torch.from_numpy(ids) for ids in lists], batch_first=True).numpy()


def asked_by_world(
    way: Deployment, world: World, asked: Int[Tensor, "n U"] | None, inputs: list[Int[np.ndarray, "U"]]
) -> list[float]:
    """How many neighbours all nodes of a world ask about an input: those `asked` one after another or, where
    they are not, one for every row that is neither oneself nor a model one holds."""
    if asked is not None:
        own = [asked[world.nodes_of(s), : len(ids)] for s, ids in enumerate(inputs)]
        return [*map(asked_on_average, own, world.worlds, inputs)]
    asks = way.members[:, 0] != way.members[:, 1]
    asks = asks if way.held is None else asks & ~way.held
    of_world = way.members[asks, 0] // world.seeds.n
    counts: list[float] = torch.bincount(of_world, minlength=len(world.worlds)).double().tolist()
    return counts


def check_members(deployment: Deployment, edges: Int[Tensor, "E 2"], n: int, method: str) -> None:
    """Who answers for a node must be itself or a neighbour: there is no other door."""
    known = torch.cat([edges[:, 0] * n + edges[:, 1], torch.arange(n, device=edges.device) * (n + 1)])
    for way in (deployment, *deployment.variants.values()):
        there = ((way.members >= 0) & (way.members < n)).all(1)
        strangers = way.members[~(there & torch.isin(way.members[:, 0] * n + way.members[:, 1], known))]
        for node, member in strangers.tolist():
            raise LNTrustError(
                f"method {method}: deploys node {member} at node {node}, which does not "
                "know it; a member must be the node itself or a neighbour"
            )
