"""The ledger: bytes per directed edge, phase and kind, payload and framing apart."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from lntrust.network.codec import KINDS, Kind, Size

Phase = str  # "stage 1", "probe", "distil", …: a method names its own


class Ledger:
    """Edge e is row e of `edges`, from its first node to its second."""

    def __init__(self, edges: Int[ndarray, "E 2"]) -> None:
        self.edges = edges
        self._counts: dict[tuple[Phase, Kind], Int[ndarray, "E 3"]] = defaultdict(
            lambda: np.zeros((len(edges), 3), dtype=np.int64)  # payload, framing, messages
        )

    def book(self, edge: Int[ndarray, "q"], phase: Phase, kind: Kind, size: Size) -> None:
        """A message of this size passed over each of these edges."""
        times = np.bincount(edge, minlength=len(self.edges))
        self._counts[phase, kind] += times[:, None] * np.array([size.payload, size.framing, 1])

    def book_one(self, edge: int, phase: Phase, kind: Kind, size: Size) -> None:
        """A single message; where they come one by one, sooner than by looking at all edges."""
        self._counts[phase, kind][edge] += (size.payload, size.framing, 1)

    def total(self, edges: slice = slice(None)) -> int:
        """All bytes so far, framing included, over some of the edges."""
        return sum(int(counts[edges, :2].sum()) for _, _, counts in self)

    def __iter__(self) -> Iterator[tuple[Phase, Kind, Int[ndarray, "E 3"]]]:
        return ((phase, kind, counts) for (phase, kind), counts in sorted(self._counts.items()))

    def payload(self, kind: Kind | None = None, phase: Phase | None = None) -> Int[ndarray, "E"]:
        """Payload bytes per directed edge."""
        out = np.zeros(len(self.edges), dtype=np.int64)
        for p, k, counts in self:
            if kind in (None, k) and phase in (None, p):
                out += counts[:, 0]
        return out

    def summary(self, edges: slice = slice(None)) -> dict[str, Any]:
        """Totals by kind and by phase, over some of the edges or all. `total` includes framing."""
        framings: dict[str, int] = dict.fromkeys(KINDS, 0)
        phases: dict[str, dict[str, int]] = {}
        for phase, kind, counts in self:
            payload, framing, messages = counts[edges].sum(0).tolist()
            if messages:
                framings[kind] += framing
                entry = phases.setdefault(phase, dict.fromkeys((*KINDS, "framing", "messages"), 0))
                for name, count in ((kind, payload), ("framing", framing), ("messages", messages)):
                    entry[name] += count
        sums = {name: sum(each[name] for each in phases.values()) for name in (*KINDS, "framing")}
        return {"total": sum(sums.values()), **sums, "by_phase": phases, "framing_by_kind": framings}

    def state(self) -> dict[str, Tensor]:
        return {f"{phase}/{kind}": torch.from_numpy(counts.copy()) for phase, kind, counts in self}

    def load(self, state: dict[str, Tensor]) -> None:
        self._counts.clear()
        for name, tensor in state.items():
            phase, _, kind = name.rpartition("/")
            self._counts[phase, kind] = tensor.numpy().copy()  # type: ignore[index]
