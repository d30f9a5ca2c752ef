"""Randomness with names: every draw is a pure function of (seed, stream, node, step, position).

A counter-based generator in 64-bit integer tensor operations. There is no state to save, restore or
share, so a draw is the same on CPU and GPU, for a whole population or for one node at a time, and
adding a method, a node or a metric never moves another stream.
"""

import math
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Stream = Literal[
    "partition", "graph", "initial weights", "batches", "dropout", "queries", "schedule", "estimators",
    "importance", "gossip", "anchors", "selection", "tuning", "noise", "aggregator",
]  # fmt: skip

Rng = np.random.Generator  # of draws made once, before training
# The constants of SplitMix64 (Steele, Lea & Flood 2014), as signed 64-bit integers.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's own is arithmetic on signed integers."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mix(x: Int[Tensor, "*s"]) -> Int[Tensor, "*s"]:
    """SplitMix64's finaliser: a bijection on words; every bit out depends on every bit in."""
    x = _shift(x, 30).bitwise_xor_(x).mul_(_MIX_1)
    x = _shift(x, 27).bitwise_xor_(x).mul_(_MIX_2)
    return _shift(x, 31).bitwise_xor_(x)


def fold(key: Int[Tensor, "*s"], counter: Tensor | int) -> Int[Tensor, "*s"]:
    """The `counter`-th word of the generator that starts at `key`. Broadcasts."""
    if isinstance(counter, int):  # Python's integers do not wrap around by themselves
        return mix(key + (((counter + 1) * _GOLDEN + 2**63) % 2**64 - 2**63))
    return mix(key + (counter + 1) * _GOLDEN)


def stream_key(seed: int, stream: Stream, device: torch.device | str = "cpu") -> Int[Tensor, ""]:
    """The root key of a named stream."""
    return fold(torch.tensor(zlib.crc32(stream.encode()), dtype=torch.int64), seed).to(device)


def small_seed(seed: int, stream: Stream, *counters: int) -> int:
    """A 31-bit seed for libraries with generators of their own (scikit-learn, torch's initialisers)."""
    key = stream_key(seed, stream)
    for counter in counters:
        key = fold(key, counter)
    return int(_shift(key, 33))


@dataclass(frozen=True)
class Seeds:
    """The seeds of worlds that stand side by side: node i is node i mod n of world i div n.

    A node's draws depend on its own world's seed and its number there, so nobody notices the neighbours.
    """

    seeds: tuple[int, ...]
    n: int  # nodes in each world

    @classmethod
    def of(cls, seed: "int | Seeds", n: int) -> "Seeds":
        """One world's, where only its seed is given."""
        return cls((seed,), n) if isinstance(seed, int) else seed

    def __len__(self) -> int:
        return len(self.seeds)

    def keys(self, stream: Stream, device: torch.device | str = "cpu") -> Int[Tensor, "nodes"]:
        """The root of every node's part of a stream."""
        number = torch.arange(self.n, device=device)
        return torch.cat([fold(stream_key(seed, stream, device), number) for seed in self.seeds])

    def roots(self, stream: Stream, device: torch.device | str = "cpu") -> Int[Tensor, "worlds"]:
        """The root of every world's stream."""
        return torch.stack([stream_key(seed, stream, device) for seed in self.seeds])

    def world(self, device: torch.device | str = "cpu") -> Int[Tensor, "nodes"]:
        """Which world each node lives in."""
        return torch.arange(len(self.seeds) * self.n, device=device) // max(1, self.n)

    def small_seed(self, stream: Stream, node: int, *counters: int) -> int:
        """A node's own seed for a library with a generator of its own."""
        return small_seed(self.seeds[node // self.n], stream, node % self.n, *counters)


def generator(seed: int, stream: Stream, *counters: int) -> Rng:
    """A numpy generator with a name (partition, graph)."""
    return np.random.default_rng([seed, zlib.crc32(stream.encode()), *counters])


def uniform(key: Int[Tensor, "*s"], count: int) -> Float[Tensor, "*s count"]:
    """`count` numbers in [0, 1) per key, with 53 random bits each, in float64."""
    words = fold(key[..., None], torch.arange(count, device=key.device))
    return _shift(words, 11).double() * 2.0**-53


def normal(key: Int[Tensor, "*s"], count: int) -> Float[Tensor, "*s count"]:
    """`count` standard normal numbers per key, in float64 (Box–Muller)."""
    half = (count + 1) // 2
    u = uniform(key, 2 * half)
    radius = torch.sqrt(-2.0 * torch.log1p(-u[..., :half]))
    angle = 2.0 * math.pi * u[..., half:]
    return torch.cat([radius * angle.cos(), radius * angle.sin()], -1)[..., :count]


@cache
def _byte_table(dtype: torch.dtype) -> Float[Tensor, "256 8"]:
    bits = torch.arange(256)[:, None] >> torch.arange(8)
    return (bits & 1).to(dtype) * 2


def dropout_mask(
    key: Int[Tensor, "k"], shape: tuple[int, ...], p: float, dtype: torch.dtype, out: Tensor | None = None
) -> Float[Tensor, "k *shape"]:
    """Inverted-dropout masks, one per key: 0 with probability p, else 1/(1−p). `shape` is [B, …].

    p = ½ takes one bit per unit. On a CPU the bits come out of a table with a row for each byte, ten times
    faster than shifting them out one by one. `out` may take them up; what is returned are the masks.
    """
    rows, units = shape[0], int(np.prod(shape[1:]))
    row_keys = fold(key[:, None], torch.arange(rows, device=key.device))
    if p != 0.5:
        kept = uniform(row_keys, units) >= p
        return (kept.to(dtype) / ((1.0 - p) or 1.0)).reshape(-1, *shape)  # p = 1 keeps nothing
    words = fold(row_keys[..., None], torch.arange(-(-units // 64), device=key.device))
    octets = words.view(torch.uint8)
    if key.is_cuda:  # where shifting is cheap, and looking up is not
        powers = 2 ** torch.arange(8, dtype=torch.uint8, device=key.device)
        mask = torch.where((octets[..., None] & powers) != 0, 2.0, 0.0).to(dtype)
    else:
        into = out.view(-1, 8) if out is not None and units % 64 == 0 else None
        mask = torch.index_select(_byte_table(dtype), 0, octets.flatten().int(), out=into)
    return mask.view(len(key), rows, -1)[..., :units].reshape(-1, *shape)


def choose(key: Int[Tensor, "k"], size: int, count: int) -> Int[Tensor, "k count"]:
    """`count` of `size` positions without replacement, one draw per key, in random order."""
    words = fold(key[:, None], torch.arange(size, device=key.device))
    return words.argsort(dim=1, stable=True)[:, :count]


def batches(
    key: Int[Tensor, "k"], size: Int[Tensor, "k"], first: Int[Tensor, "k"], count: int
) -> Int[Tensor, "k count"]:
    """Positions first, first+1, … of each node's endless sequence of shuffles of range(size).

    A batch so runs on into the next shuffle. `key` holds one key per node; epoch e is shuffled by the
    words of fold(key, e). All nodes' touched epochs are sorted in one go, whatever their sizes.
    """
    device = key.device
    epoch_first = first // size
    epochs = (first + count - 1) // size - epoch_first + 1
    node_of_epoch = torch.repeat_interleave(torch.arange(len(key), device=device), epochs)
    starts = epochs.cumsum(0) - epochs
    epoch = torch.arange(len(node_of_epoch), device=device) - starts[node_of_epoch]
    epoch_key = fold(key[node_of_epoch], epoch + epoch_first[node_of_epoch])

    length = size[node_of_epoch]
    begin = length.cumsum(0) - length
    of_slot = torch.repeat_interleave(torch.arange(len(length), device=device), length)
    position = torch.arange(len(of_slot), device=device) - begin[of_slot]
    # Sorted first by epoch, then by 40 random bits inside it.
    words = (of_slot << 40) | _shift(fold(epoch_key[of_slot], position), 24)
    shuffled = position[words.argsort(stable=True)]

    wanted = first[:, None] + torch.arange(count, device=device)
    local_epoch = wanted // size[:, None] - epoch_first[:, None]
    slot = begin[starts[:, None] + local_epoch] + wanted % size[:, None]
    return shuffled[slot]


def active_steps(key: Int[Tensor, ""], nodes: int, draws: int) -> Bool[Tensor, "most n"]:
    """Which nodes take their k-th step when `draws` draws of a random node are dealt out.

    Row k is true for nodes drawn more than k times; the last row is the busiest node's last step.
    """
    drawn = (uniform(key, draws) * nodes).long()
    times = torch.bincount(drawn, minlength=nodes)
    return times[None, :] > torch.arange(int(times.max()), device=key.device)[:, None]
