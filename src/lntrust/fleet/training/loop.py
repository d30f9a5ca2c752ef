"""What a live node does by itself, in one thread: learn, ask, trust, and learn from whom it trusts.

The rounds are the simulation's, and so is the method; but the clock is the node's own. Stage 1 is local
training. Then the node probes its neighbours, and Stage 2 goes on as the paper has it, with whoever answers.
When training is over it probes now and then, since neighbours change, go, and come back.
"""

import math
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import torch

from lntrust.core.errors import LNTrustError
from lntrust.fleet.answers import Trust
from lntrust.fleet.logs import event, failed, why
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.data import NodeData
from lntrust.fleet.training.learner import LiveLearner
from lntrust.fleet.training.network import LiveNetwork, NeighbourWatch
from lntrust.fleet.training.state import NodeState, Saved, write_state
from lntrust.fleet.training.world import node_world
from lntrust.learners import Labelled
from lntrust.methods import Site
from lntrust.methods.base import Schedule, below, under
from lntrust.methods.lntrust.method import LNTrust
from lntrust.methods.lntrust.state import TrustState
from lntrust.trust.weights import Memory

_LOG_LENGTH = 100  # refreshes whose trust is remembered
_LOOK = 0.5  # seconds between two looks around, once training is over
_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)  # seconds before training is tried again, failure by failure
_MISFITS = (KeyError, TypeError, RuntimeError, ValueError, IndexError)  # of tensors that are not as expected


class TrainingLoop:
    """Rounds, one after another, from the last saved state on."""

    def __init__(
        self, settings: NodeSettings, data: NodeData, learner: LiveLearner, neighbours: Neighbours,
        traffic: TrafficCounters, snapshots: SnapshotStore, saved: Saved | None, torn: str | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.data, self.learner = settings, data, learner
        self.trust = Trust()
        self.done, self.version = 0, 0
        self.error: str | None = None  # why training fails, if it does
        self.failures, self._in_a_row = 0, 0  # since the node started, and since something went well
        self.saved: dict[str, Any] = {"round": None, "at": None, "failures": 0, "torn": torn}
        self._neighbours, self._traffic, self._snapshots = neighbours, traffic, snapshots
        self._names = [each.name for each in settings.neighbours]
        self._world = node_world(settings, data)
        self._network = LiveNetwork(
            settings, self._world, data, neighbours, lambda: self.learner.population, self._publish
        )
        self._method = LNTrust(settings.trust)
        self._trusts = bool(self._names) and len(data.validation) > 0
        self._state: TrustState | None = None  # none before Stage 2, and where nobody is trusted
        self._memory: Memory | None = None  # a trust model of other neighbours, or of other data
        self._settled: Memory = {}  # the trust model at the end of training
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._one_by_one = threading.Lock()  # for those who replace the model
        self._replaced = False
        self._replacement: tuple[Any, Future[None]] | None = None
        self._watch = NeighbourWatch(neighbours, settings.life.refresh_every)
        self._lockstep = settings.network.clock == "lockstep"
        self._refreshed_at = self._saved_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        if saved is not None:
            try:
                self._restore(saved)
            except _MISFITS as error:  # whole as the file is, it may be of another model
                wrong = f"holds another model's state ({why(error)})"
                hint = "move it away, or set life.state to a new folder"
                raise LNTrustError(f"{settings.life.state}: {wrong}; {hint}") from None
        self._begun = self._state is not None  # whether Stage 2 has begun
        self._enter_stage()
        self._publish(None)

    # -- from outside -----------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        return self.settings.training.rounds

    @property
    def phase(self) -> str:
        if self.done < self.settings.training.stage1_rounds:
            return "stage 1"
        return "stage 2" if self.done < self.rounds else "deployed"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is under way, and save."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(self.settings.limits.patience * (self.settings.limits.retries + 2) + 30)

    def replace(self, model: Any) -> None:
        """Put another model in the place of the node's own, between two rounds; returns when it is done."""
        with self._one_by_one:
            done: Future[None] = Future()
            self._replacement = (model, done)
            self._wake.set()
            while not wait([done], _LOOK).done:
                if not self._thread.is_alive():  # nobody else will do it
                    self._replace_if_asked()
        done.result()

    # -- rounds -----------------------------------------------------------------------------------

    def _enter_stage(self) -> None:
        """The stage that the rounds done belong to."""
        training, stage = self.settings.training, 1 if self.phase == "stage 1" else 2
        population = self.learner.population
        lists = self._world.labelled(stage, uses_validation=self._trusts)
        labelled = Labelled(lists, population.labels, training, population.seeds, stage, population.device)
        schedule = Schedule(training.stage2_rounds)
        self._site = Site(self._world, population, self._network, labelled, schedule)
        if stage == 1 or self._state is None or self._state.pseudo is None:
            self.learner.refit(lists)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._replace_if_asked()
                self._step()
                self._save_if_due()
                # Also if nothing was due: what has failed is due until it goes well.
                self.error, self._in_a_row = None, 0
            except (Exception, SystemExit) as error:  # it goes on answering, and tries again
                self._pause_after(error)
            if self.settings.life.rest and self.phase != "deployed":
                self._stopping.wait(self.settings.life.rest)
        self.save()

    def _step(self) -> None:
        """What is next."""
        if self.phase == "deployed" and self._begun:
            self._watch_neighbours()
            return
        # A round that fails half-way is tried again. Without a way back every try would move the model on.
        population, state = self.learner.population, self._state
        model = {name: tensor.clone() for name, tensor in population.state().items()}
        try:
            if self.phase == "stage 1":
                self._site.learn(self.done + 1)
                self.done += 1
                if self.phase == "stage 1":
                    self._publish(None)
            elif not self._begun:
                self._begin_stage2()
            else:
                self._round()
        except (Exception, SystemExit):
            with torch.no_grad():
                population.load(model)
            self._state = state
            raise

    def _pause_after(self, error: BaseException) -> None:
        """Wait a while: longer each time, until something goes well."""
        pause = _PAUSES[min(self._in_a_row, len(_PAUSES) - 1)]
        self.error = why(error)
        self.failures, self._in_a_row = self.failures + 1, self._in_a_row + 1
        failed("training fails", error, round=self.done, failures=self.failures, again_in=pause)
        self._refreshed_at = -math.inf  # if a deployed node's refresh failed, it is still due
        until = time.monotonic() + pause
        while not self._stopping.is_set() and self._replacement is None and time.monotonic() < until:
            self._wake.wait(max(0.0, min(_LOOK, until - time.monotonic())))
            self._wake.clear()
            self._save_if_due()

    def _begin_stage2(self) -> None:
        self._enter_stage()
        self._network.publish(0)
        # Rounds with nobody to ask teach nothing; but a node whose neighbours are gone goes on.
        if self._trusts and not self._lockstep:
            self._watch.wait_for_first(self.settings.life.wait, self._stopping)
        event("stage 2 begins", round=self.done, present=sorted(self._neighbours.present))
        if self._trusts:
            self._trust_as_in(self._method.refresh(self._site, None, 0, self._memory))
        if self.settings.training.stage2_rounds == 0:
            self._settle()
        self._begun = True

    def _round(self) -> None:
        t, training = self.done - self.settings.training.stage1_rounds + 1, self.settings.training
        self._network.round = t
        if self._state is None:
            self._site.learn(t)
            self._publish(t)
        else:
            state = self._method.round(self._site, self._state, t)
            if state.replies is not None and not bool(state.replies.column.any()):
                # Nobody answered: that is not remembered for K rounds, since they may be there in the next.
                state = replace(state, replies=None)
            self._state = state
            if self._method.due(self._site, t):
                self._trust_as_in(state)
            elif not self._lockstep and self._watch.sees_change(self.trust.probed, self._refreshed_at):
                self._refresh(state)
        if t % training.refresh == 0:
            pseudo = None if self._state is None else self._method.pseudo_labels(self._site, self._state)
            self.learner.refit(self._site.labelled.lists, pseudo)
        if self.done + 1 == self.rounds:  # it is deployed when it has looked at its neighbours once more
            self._network.publish(training.stage2_rounds + 1)
            if self._state is not None:
                self._trust_as_in(self._method.finish(self._site, self._state))
            self._settle()
        self.done += 1

    def _watch_neighbours(self) -> None:
        """Wait a little, and probe again if there is cause: time, a newcomer, one with an older model."""
        state = None if self._lockstep else self._state  # in lockstep the comparison ends here
        due = self._refreshed_at + self.settings.life.refresh_every
        left = _LOOK if state is None else min(due - time.monotonic(), _LOOK)
        if left > 0:
            self._wake.wait(left)
            self._wake.clear()
        if state is None or self._stopping.is_set():
            return
        if time.monotonic() >= due or self._watch.sees_change(self.trust.probed, self._refreshed_at):
            self._refresh(state)

    # -- trust ------------------------------------------------------------------------------------

    def _refresh(self, state: TrustState) -> None:
        if self.phase == "deployed" and self._settled:
            # Each refresh fits a little further. Over months that would end in blind faith, so a node whose
            # training is over starts each time from the trust model with which it ended.
            state = replace(state, memory=self._settled)
        t = self.done - self.settings.training.stage1_rounds
        self._trust_as_in(self._method.refresh(self._site, state, t))

    def _settle(self) -> None:
        """Training is over: this is the trust model from which all later refreshes start."""
        self._settled = {} if self._state is None else self._state.memory
        event("training is over", round=self.rounds)

    def _trust_as_in(self, state: TrustState) -> None:
        """Make what a refresh has found known to those who answer clients."""
        self._refreshed_at = time.monotonic()
        self._state = replace(state, log=state.log.last(_LOG_LENGTH))
        self.trust = trust = Trust.of(state, [self.settings.name, *self._names], dict(self._network.probed))
        self._watch.note_probed(trust.probed)
        weights = {name: round(weight, 4) for name, weight in trust.weights.items()}
        gate, validation = trust.together, trust.validation
        event("trust refreshed", round=self.done, trust=weights, together=gate, validation=validation)

    # -- the model --------------------------------------------------------------------------------

    def _publish(self, round_: int | None) -> None:
        self.version += 1
        self._snapshots.put(self.learner.snapshot(self.version), round_)

    def _replace_if_asked(self) -> None:
        if self._replacement is None:
            return
        (model, done), self._replacement = self._replacement, None
        before = (self.learner, self._site, self._state)
        try:
            self.learner = self.learner.replaced(model)
            if self._state is not None:
                self._state = replace(self._state, pseudo=None)
            self._enter_stage()
            self.learner.snapshot(0).predict(self.data.inputs[:1])
        except Exception as error:  # the caller's to know; the old model stays
            self.learner, self._site, self._state = before
            done.set_exception(error)
            return
        self._replaced = True
        self._publish(None)
        event("model replaced", version=self.version)
        if self._thread.is_alive():
            self.save()  # else the old one would come back, under the new one's version
        done.set_result(None)
        if self._state is not None:
            self._refresh(self._state)

    # -- saving -----------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        if time.monotonic() - self._saved_at >= self.settings.life.save_every:
            self.save()

    def save(self) -> None:
        """Write down all that a restart needs. A disk that is full is no reason to stop."""
        self._saved_at = time.monotonic()
        ledger, counters = self._traffic.state()
        # With other neighbours than before, the trust model waits for Stage 2 to go on with them.
        method = under("memory/", self._memory or {}) if self._state is None else self._state.to_tensors()
        seen = {name: torch.from_numpy(ids) for name, ids in asdict(self.data.seen).items()}
        parts = {
            "ledger/": ledger, "population/": self.learner.population.state(), "method/": method,
            "settled/": self._settled, "seen/": seen,
        }  # fmt: skip
        tensors = {name: t for prefix, part in parts.items() for name, t in under(prefix, part).items()}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        node = NodeState(
            name=self.settings.name, done=self.done, version=self.version, neighbours=self._names,
            probed=self.trust.probed, data=self.data.fingerprint, counters=counters, saved_at=now,
            replaced=self._replaced, weighting=self.settings.trust.weighting,
        )  # fmt: skip
        try:
            write_state(self.settings.life.state, Saved(node, tensors))
            self.saved = {**self.saved, "round": self.done, "at": now}
        except Exception as error:  # whatever the disk, or what is to be saved, has against it
            self.saved = {**self.saved, "failures": self.saved["failures"] + 1}
            failed("state not saved", error, round=self.done)

    def _restore(self, saved: Saved) -> None:
        """Go on from a state, with what of it still holds."""
        node, tensors = saved
        self._traffic.load(below("ledger/", tensors), node.counters, node.neighbours)
        self.done, self.version = min(node.done, self.rounds), node.version
        same_data, same_model = node.data == self.data.fingerprint, True
        try:
            self.learner.load(below("population/", tensors), same_data)
        except _MISFITS:
            if not node.replaced:
                raise
            event("model of NODE.toml", note="the one put in by replace() is gone; training begins anew")
            self.learner, same_model = LiveLearner(self.settings, self.data), False
            self.done, self.version = 0, 0  # neighbours who have probed a better model notice
        if same_model and not same_data:  # it has its last stage once more, to learn from it
            training = self.settings.training
            self.done = min(self.done, training.stage1_rounds if training.stage2_rounds else 0)
            event("data has changed", note="the model goes on, and learns from it", round=self.done)
        method = below("method/", tensors)
        if self._trusts and node.weighting == self.settings.trust.weighting and method:
            self._memory = below("memory/", method) or None  # a trust model fits any neighbours
            self._settled = below("settled/", tensors) if self._memory else {}
            # Columns are in the order of the neighbours.
            if "open" in method and same_model and node.neighbours == self._names:
                state = TrustState.from_tensors(method)
                around = (1, 1 + len(self._names))
                if any(
                    t.shape[:2] != around
                    for t in (state.open, state.open_votes, state.closed, state.closed_votes)
                ):
                    raise ValueError(f"method: trust in others than the {len(self._names)} neighbours")
                self.trust = Trust.of(state, [self.settings.name, *self._names], node.probed)
                self._network.probed = dict(node.probed)
                if same_data:  # else weights count until they are learned anew, and replies are of no use
                    self._state = state
        self.saved = {**self.saved, "round": node.done, "at": node.saved_at}
        event("state restored", round=self.done, version=self.version, saved_at=node.saved_at)
