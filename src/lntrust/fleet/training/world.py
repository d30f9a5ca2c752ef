"""A live node's world: itself, and neighbours of whom it knows little more than their names.

The method runs on it as it runs on a simulated one: node 0 is the node itself, 1…d are its neighbours. Draws
are those of the node's own number, so that a fleet in lockstep draws what a simulation draws.
"""

import zlib
from dataclasses import dataclass, field

import networkx as nx
import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from lntrust.core.randomness import Seeds, Stream, fold, small_seed, stream_key
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.data import NodeData
from lntrust.study.settings import GraphSettings, PopulationSettings, Study
from lntrust.world import Ragged, World
from lntrust.world.partition.partition import Partition
from lntrust.world.world import SealedLabels, class_distribution


@dataclass(frozen=True)
class OneNode(Seeds):
    """The draws of one node of a fleet of n, known by its number there."""

    number: int = 0

    def keys(self, stream: Stream, device: torch.device | str = "cpu") -> Int[Tensor, "1"]:
        return fold(stream_key(self.seeds[0], stream, device), self.number)[None]

    def small_seed(self, stream: Stream, node: int, *counters: int) -> int:
        return small_seed(self.seeds[0], stream, self.number, *counters)


@dataclass(frozen=True)
class NodeWorld(World):
    """What the node knows: its own data, and of its neighbours how many neighbours they have."""

    number: int = 0
    known_degrees: Int[ndarray, "d+1"] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    @property
    def seeds(self) -> OneNode:
        return OneNode((self.seed,), self.study.graph.nodes, self.number)

    @property
    def degrees(self) -> Int[ndarray, "d+1"]:
        """Its own, then its neighbours', as they said when they met; 0 before."""
        return self.known_degrees


def node_number(settings: NodeSettings) -> int:
    """Which draws are the node's own: those of its number in lockstep, else of its name."""
    number = settings.network.number
    return zlib.crc32(settings.name.encode()) if number is None else number


def node_world(settings: NodeSettings, data: NodeData) -> NodeWorld:
    d = len(settings.neighbours)
    study = Study(
        name=settings.name,
        graph=GraphSettings(nodes=settings.network.fleet_size or d + 1),
        population=PopulationSettings(assign="in_turn", learners=[settings.learner]),
        training=settings.training,
    )
    nobody = data.train[:0]
    parts = (data.train, data.validation, data.shard, nobody)
    train, validation, shard, none = (Ragged.of([ids]) for ids in parts)
    w = class_distribution(data.labels, (train, validation), len(settings.input.classes))
    partition = Partition(train, validation, none, none, shard, nobody, w.argmax(1), w.max(1))
    return NodeWorld(
        study=study,
        seed=settings.seed,
        graph=nx.star_graph(d),
        edges=np.stack([np.zeros(d, dtype=np.int64), 1 + np.arange(d)], 1),
        kinds=np.zeros(1, dtype=np.int64),
        partition=partition,
        classes=settings.input.classes,
        input_shape=settings.input.shape,
        input_dtype=settings.input.dtype,
        labels=data.labels,
        class_distribution=w,
        sealed=SealedLabels(data.labels),
        number=node_number(settings),
        known_degrees=np.array([d] + [0] * d),
    )
