"""The world: graph, data and kinds of learners of one study and seed, put together."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from lntrust.core.errors import CannotStackError, LNTrustError
from lntrust.core.randomness import Seeds
from lntrust.study.settings import PopulationSettings, Study
from lntrust.world.data.datasets import Dataset
from lntrust.world.graphs import directed_edges, make_graph
from lntrust.world.partition.partition import Partition, make_partition
from lntrust.world.partition.splits import class_table
from lntrust.world.ragged import Ragged


class SealedLabels:
    """Test labels behind a seal that opens once: after training, for one pass of scoring."""

    def __init__(self, labels: Int[ndarray, "N"]) -> None:
        self._labels: Int[ndarray, "N"] | None = labels

    def open(self, ids: Int[ndarray, "U"]) -> Int[ndarray, "U"]:
        """The labels of these examples. A second opening is a programming error."""
        if self._labels is None:
            raise RuntimeError("test labels have been read already; they are read once, after training")
        labels: Int[ndarray, "U"] = self._labels[ids]
        self._labels = None
        return labels


@dataclass(frozen=True)
class World:
    """Who exists, who knows whom, whose data. Examples are ids; how they look is up to the views."""

    study: Study
    seed: int
    graph: "nx.Graph[int]"
    edges: Int[ndarray, "E 2"]  # (asker, answerer), both ways, sorted
    kinds: Int[ndarray, "n"]  # index into study.population.learners
    partition: Partition
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]
    input_dtype: str
    labels: Int[ndarray, "N"]  # −1 for every example that nobody may train or validate on
    class_distribution: Float[ndarray, "n C"]  # w_i, of train + validation labels
    sealed: SealedLabels = field(repr=False)
    # Worlds of one study that stand side by side in this one, seed after seed; none: it is one world. Then
    # `labels` holds theirs one after another, and `seed`, `graph` and `sealed` are the first one's.
    beside: tuple["World", ...] = ()

    @property
    def n(self) -> int:
        return len(self.kinds)

    @property
    def worlds(self) -> tuple["World", ...]:
        """The single worlds in it: itself, or those that stand side by side."""
        return self.beside or (self,)

    @property
    def seeds(self) -> Seeds:
        return Seeds(tuple(world.seed for world in self.worlds), self.worlds[0].n)

    def nodes_of(self, world: int) -> slice:
        """The nodes of one of the single worlds."""
        n = self.seeds.n
        return slice(world * n, (world + 1) * n)

    def edges_of(self, world: int) -> slice:
        """The edges inside one of the single worlds."""
        ends = np.cumsum([0, *(len(one.edges) for one in self.worlds)])
        return slice(int(ends[world]), int(ends[world + 1]))

    @property
    def degrees(self) -> Int[ndarray, "n"]:
        return np.bincount(self.edges[:, 0], minlength=self.n)

    def labelled(self, stage: int, uses_validation: bool) -> Ragged:
        """What a method trains on. One that uses validation labels does not train on them.

        Stage 3 are the last rounds of a method that has no more use for them: all that the others train on.
        """
        p, fresh = self.partition, self.study.partition.validation == "fresh"
        if uses_validation and (stage == 2 or (stage == 1 and not fresh)):
            return p.train
        return p.train.joined(p.given_up if fresh else p.validation)


def assign_kinds(settings: PopulationSettings, degrees: Int[ndarray, "n"]) -> Int[ndarray, "n"]:
    """The learner of each node: by degree (hubs first), or in turn."""
    n = len(degrees)
    if settings.assign == "in_turn":
        return np.arange(n) % len(settings.learners)
    place = np.argsort(np.argsort(-degrees, kind="stable"))  # by falling degree; ties: lower index
    ends = np.cumsum([round((learner.share or 0) * n) for learner in settings.learners[:-1]])
    return np.searchsorted(ends, place, side="right")


def build_world(study: Study, dataset: Dataset, seed: int) -> World:
    """Everything about a study and a seed that is the same for every method."""
    if dataset.name != study.data.dataset:
        raise LNTrustError(f"data.dataset = {study.data.dataset!r}: got {dataset.name} instead")
    n = study.graph.nodes
    if study.partition.by == "label_skew":
        graph = make_graph(study.graph, seed)
        degrees = np.array([graph.degree(i) for i in range(n)], dtype=np.int64)
        partition = make_partition(dataset, study.partition, degrees, seed)
    else:  # sizes are given by the data, and the graph may depend on it
        partition = make_partition(dataset, study.partition, np.zeros(n, dtype=np.int64), seed)
        features = _mean_inputs(study, dataset, partition) if study.graph.kind == "knn" else None
        graph = make_graph(study.graph, seed, partition.centres, features)
    edges = directed_edges(graph)
    seen = (partition.train, partition.validation, partition.given_up)
    labels = np.full(len(dataset.labels), -1, dtype=np.int64)
    for lists in seen:
        labels[lists.values] = dataset.labels[lists.values]
    return World(
        study=study,
        seed=seed,
        graph=graph,
        edges=edges,
        kinds=assign_kinds(study.population, np.bincount(edges[:, 0], minlength=n)),
        partition=partition,
        classes=dataset.classes,
        input_shape=dataset.input_shape,
        input_dtype=dataset.input_dtype,
        labels=labels,
        class_distribution=class_distribution(labels, seen[:2], len(dataset.classes)),
        sealed=SealedLabels(dataset.labels),
    )


def side_by_side(worlds: Sequence[World]) -> World:
    """Several seeds of one study as one world: nodes numbered through, and no edge between them."""
    if len(worlds) == 1:
        return worlds[0]
    first, n = worlds[0], worlds[0].n
    parts = [world.partition for world in worlds]
    shards = {int(size) for p in parts for size in p.shard.lengths}
    if len(shards) > 1:
        raise CannotStackError(
            f"study {first.study.name}: unlabelled shards of {min(shards)} to {max(shards)} examples cannot "
            "be stacked; run these seeds one by one"
        )

    def chained(values: list[Any]) -> Any:
        if isinstance(values[0], Ragged):
            return Ragged.of([ids for lists in values for ids in lists])
        return None if values[0] is None else np.concatenate(values)

    return replace(
        first,
        edges=np.concatenate([world.edges + s * n for s, world in enumerate(worlds)]),
        kinds=np.concatenate([world.kinds for world in worlds]),
        partition=Partition(*(chained([getattr(p, f.name) for p in parts]) for f in fields(Partition))),
        labels=np.concatenate([world.labels for world in worlds]),
        class_distribution=np.concatenate([world.class_distribution for world in worlds]),
        beside=tuple(worlds),
    )


def class_distribution(labels: Int[ndarray, "N"], parts: tuple[Ragged, ...], C: int) -> Float[ndarray, "n C"]:
    """How the labels of each node's examples are spread over the classes."""
    counts = sum(class_table(lists, labels, C) for lists in parts)
    return np.asarray(counts / np.sum(counts, axis=1, keepdims=True))


def _mean_inputs(study: Study, dataset: Dataset, partition: Partition) -> Float[ndarray, "n d"]:
    """Mean training input of each node, in the first learner's view."""
    view = dataset.view(study.population.learners[0].view)
    if not isinstance(view, ndarray):
        raise LNTrustError("graph.kind = knn: needs raw inputs, and this view holds coded features")
    flat = view.reshape(len(view), -1)
    return np.stack([flat[ids].mean(0) for ids in partition.train])
