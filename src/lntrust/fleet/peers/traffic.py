"""What a live node counts: every byte by neighbour, phase and kind, and everything that went wrong.

Bytes stand in the same ledger as in a simulation: the node's questions under the phases probe, distil and
deploy, as the method has them; hellos, retries and what others ask of it (served) under their own.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from lntrust.network.codec import Kind, Size
from lntrust.network.ledger import Ledger

Counted = Literal["queries in", "queries out", "retries", "refusals", "failures", "clients"]
COUNTED: tuple[Counted, ...] = ("queries in", "queries out", "retries", "refusals", "failures", "clients")
SERVED, HELLO, RETRY, DEPLOY = "served", "hello", "retry", "deploy"


def size_of(tensors: Iterable[ndarray], total: int) -> Size:
    """Of a message of so many bytes, with these tensors in it."""
    payload = sum(int(tensor.nbytes) for tensor in tensors)
    return Size(payload, max(0, total - payload))


class TrafficCounters:
    """Edge e goes from the node to neighbour e, edge d + e comes back. Several threads may write."""

    def __init__(self, names: Sequence[str]) -> None:
        self._edge = {name: number for number, name in enumerate(names)}
        d = len(names)
        out = np.stack([np.zeros(d, dtype=np.int64), 1 + np.arange(d)], 1)
        self.ledger = Ledger(np.concatenate([out, out[:, ::-1]]))
        self._counts: dict[Counted, Counter[str]] = {what: Counter() for what in COUNTED}
        self._lock = threading.Lock()

    def sent(self, name: str, phase: str, kind: Kind, size: Size) -> None:
        with self._lock:
            self.ledger.book_one(self._edge[name], phase, kind, size)

    def received(self, name: str, phase: str, kind: Kind, size: Size) -> None:
        with self._lock:
            self.ledger.book_one(len(self._edge) + self._edge[name], phase, kind, size)

    def count(self, what: Counted, key: str, times: int = 1) -> None:
        with self._lock:
            self._counts[what][key] += times

    def counted(self, what: Counted) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counts[what].items()))

    def bytes_by_kind(self) -> dict[str, dict[str, int]]:
        """Payload bytes in and out, by kind, and framing."""
        d = len(self._edge)
        with self._lock:
            both = {"out": self.ledger.summary(slice(0, d)), "in": self.ledger.summary(slice(d, 2 * d))}
        kinds = ("query", "reply", "framing")
        return {way: {kind: int(summary[kind]) for kind in kinds} for way, summary in both.items()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The ledger as tensors, the counters as JSON."""
        with self._lock:
            return self.ledger.state(), {what: dict(counts) for what, counts in self._counts.items()}

    def load(self, tensors: dict[str, Tensor], counters: dict[str, Any], names: Sequence[str]) -> None:
        """A saved state of these neighbours; those that are none any more are forgotten."""
        old, new = len(names), len(self._edge)
        moved = {}
        for key, saved in tensors.items():
            mine = moved[key] = torch.zeros(2 * new, 3, dtype=torch.int64)
            for i, e in ((i, self._edge[name]) for i, name in enumerate(names) if name in self._edge):
                mine[e], mine[new + e] = saved[i], saved[old + i]
        with self._lock:
            self.ledger.load(moved)
            for what in COUNTED:
                self._counts[what] = Counter(counters.get(what, {}))
