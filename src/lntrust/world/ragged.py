"""Lists of different lengths, one per node, in two flat arrays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy import ndarray


@dataclass(frozen=True)
class Ragged:
    """Node i's list is `values[offsets[i]:offsets[i+1]]`."""

    values: Int[ndarray, "total"]
    offsets: Int[ndarray, "n+1"]

    @classmethod
    def of(cls, lists: Sequence[Int[ndarray, "_"]]) -> "Ragged":
        values = np.concatenate([np.zeros(0), *lists], dtype=np.int64, casting="unsafe")
        return cls(values, np.cumsum([0, *map(len, lists)], dtype=np.int64))

    @classmethod
    def empty(cls, n: int) -> "Ragged":
        return cls.of([np.zeros(0)] * n)

    def __getitem__(self, i: int) -> Int[ndarray, "_"]:
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Int[ndarray, "_"]]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> Int[ndarray, "n"]:
        return np.diff(self.offsets)

    @property
    def owner(self) -> Int[ndarray, "total"]:
        """The node that each value belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def halves(self) -> tuple["Ragged", "Ragged"]:
        """Every second of each list, and the others: of an odd number one more."""
        second, others = (Ragged.of([ids[first::2] for ids in self]) for first in (1, 0))
        return second, others

    def joined(self, other: "Ragged") -> "Ragged":
        """Node by node, this list followed by the other."""
        return Ragged.of([np.concatenate(pair) for pair in zip(self, other, strict=True)])
