"""The model as it stands, for all who ask; in lockstep also as it stood at every round."""

import threading

from lntrust.core.errors import LNTrustError
from lntrust.fleet.training.learner import Snapshot

_ROUNDS = 256  # that are kept; a neighbour that is further behind has lost step


class SnapshotStore:
    """Snapshots: the training thread puts them, the threads that answer take them."""

    def __init__(self, lockstep: bool, patience: float) -> None:
        self._lockstep, self._patience = lockstep, patience
        self._latest: Snapshot | None = None
        self._by_round: dict[int, Snapshot] = {}
        self._changed = threading.Condition()

    def put(self, snapshot: Snapshot, round_: int | None = None) -> None:
        with self._changed:
            self._latest = snapshot
            if self._lockstep and round_ is not None:
                self._by_round[round_] = snapshot
                self._by_round.pop(round_ - _ROUNDS, None)
            self._changed.notify_all()

    @property
    def latest(self) -> Snapshot:
        if self._latest is None:
            raise LNTrustError("there is no model yet")
        return self._latest

    @property
    def version(self) -> int:
        """Of the latest; 0 before the first."""
        return 0 if self._latest is None else self._latest.version

    def at(self, round_: int) -> Snapshot:
        """The model that answers a question of this round. In lockstep it waits for a round to come.

        A round below 0 stands for now: a client's question belongs to no round.
        """
        if not self._lockstep or round_ < 0:
            return self.latest
        with self._changed:
            self._changed.wait_for(lambda: max(self._by_round, default=-1) >= round_, self._patience)
            snapshot, newest = self._by_round.get(round_), max(self._by_round, default=-1)
        if snapshot is None:
            what = "is over and forgotten" if round_ <= newest else "has not come"
            raise LNTrustError(f"round {round_} {what}; the last one is {newest}")
        return snapshot
