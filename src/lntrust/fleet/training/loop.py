"""What a live node does by itself, in one thread: learn, ask, trust, and learn from whom it trusts.

The rounds are the simulation's, and so is the method; but the clock is the node's own. Stage 1 is local
training. Then the node probes its neighbours, and Stage 2 goes on as the paper has it, with whoever answers.
When training is over it probes now and then, since neighbours change, go, and come back.
"""

import math
import threading
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import torch

from lntrust.fleet.logs import event, failed
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training.data import NodeData
from lntrust.fleet.training.learner import LiveLearner
from lntrust.fleet.training.network import OUT_OF_TURN, LiveNetwork, NeighbourWatch
from lntrust.fleet.training.state import MISFITS, NodeState, Saved, blaming, write_state
from lntrust.fleet.training.trust_state import Trust, still_valid
from lntrust.fleet.training.world import node_world
from lntrust.learners import Labelled
from lntrust.methods import Site
from lntrust.methods.base import Schedule, Tensors, below, under
from lntrust.methods.lntrust.method import LNTrust
from lntrust.methods.lntrust.state import TrustState
from lntrust.trust.weights import Memory

_LOG_LENGTH = 100  # refreshes whose trust is remembered
_LOOK = 0.5  # seconds between two looks around, once training is over
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds before training is tried again


class TrainingErrors:
    """What went wrong in training. The thread that learns writes it, others read it."""

    def __init__(self) -> None:
        self.last: str | None = None  # none: all is well
        self.count = 0  # since the node started
        self._pause = 0.0

    def note(self, error: BaseException) -> float:
        """Training has failed. Returns after how many seconds to try again: ever more, up to a minute."""
        self.last = f"{type(error).__name__}: {error}"
        self.count += 1
        self._pause = min(2 * self._pause or _FIRST_PAUSE, _LONGEST_PAUSE)
        return self._pause

    def clear(self) -> None:
        """What was tried has gone well."""
        self.last, self._pause = None, 0.0


class TrainingLoop:
    """Rounds, one after another, from the last saved state on."""

    def __init__(
        self, settings: NodeSettings, data: NodeData, learner: LiveLearner, neighbours: Neighbours,
        traffic: TrafficCounters, snapshots: SnapshotStore, saved: Saved | None, torn: str | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.data, self.learner = settings, data, learner
        self.trust, self.errors = Trust(), TrainingErrors()
        self.done, self.version = 0, 0
        self.saved: dict[str, Any] = {"round": None, "at": None, "failures": 0, "torn": torn}
        self._neighbours, self._traffic, self._snapshots = neighbours, traffic, snapshots
        self._fingerprint, self._seen = data.fingerprint, asdict(data.seen)
        self._names = [each.name for each in settings.neighbours]
        self._members = [settings.name, *self._names]
        self._world = node_world(settings, data)
        self._network = LiveNetwork(
            settings, self._world, lambda: self.learner.population, data, neighbours, self._publish
        )
        trusts = bool(self._names) and len(data.validation) > 0
        self._method = LNTrust(settings.trust) if trusts else None
        self._state: TrustState | None = None
        self._memory: Memory | None = None  # a trust model of other neighbours, or of other data
        self._settled: Memory = {}  # the trust model at the end of training
        self._before: tuple[Tensors, TrustState | None] | None = None  # before the round that is under way
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._one_by_one = threading.Lock()  # for those who replace the model
        self._replaced = False
        self._replacement: tuple[Any, threading.Event, list[BaseException]] | None = None
        self._watch = NeighbourWatch(neighbours, settings.life.refresh_every)
        self._lockstep = settings.network.clock == "lockstep"
        self._refreshed_at = self._saved_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        if saved is not None:
            with blaming(settings.life.state):
                self._restore(saved)
        self._begun = self._state is not None  # whether Stage 2 has begun
        self._enter_stage()

    # -- from outside -----------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        return self.settings.training.stage1_rounds + self.settings.training.stage2_rounds

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
            done, errors = threading.Event(), list[BaseException]()
            self._replacement = (model, done, errors)
            self._wake.set()
            while not done.wait(_LOOK):
                if not self._thread.is_alive():  # nobody else will do it
                    self._replace_if_asked()
        if errors:
            raise errors[0]

    # -- rounds -----------------------------------------------------------------------------------

    def _enter_stage(self) -> None:
        """The stage that the rounds done belong to; the model can be asked from now on."""
        training, stage = self.settings.training, 1 if self.phase == "stage 1" else 2
        population = self.learner.population
        lists = self._world.labelled(stage, uses_validation=self._method is not None)
        labelled = Labelled(lists, population.labels, training, population.seeds, stage, population.device)
        schedule = Schedule(training.stage2_rounds)
        self._site = Site(self._world, population, self._network, labelled, schedule)
        if self.learner.refits and (stage == 1 or self._state is None or self._state.pseudo is None):
            population.refit(lists)
        if self._snapshots.empty:
            self._publish(None)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._replace_if_asked()
                self._step()
                self._before = None
                self._save_if_due()
                self.errors.clear()  # also if nothing was due: what has failed is due until it goes well
            except (Exception, SystemExit) as error:  # it goes on answering, and tries again
                self._recover(error)
            if self.settings.life.rest and self.phase != "deployed":
                self._stopping.wait(self.settings.life.rest)
        self.save()

    def _step(self) -> None:
        """What is next."""
        if self.phase == "deployed" and self._begun:
            self._watch_neighbours()
            return
        # A round that fails half-way is tried again. Without a way back every try would move the model on.
        model = {name: tensor.clone() for name, tensor in self.learner.population.state().items()}
        self._before = (model, self._state)
        if self.phase == "stage 1":
            self._local_round()
        elif not self._begun:
            self._begin_stage2()
        else:
            self._round()

    def _recover(self, error: BaseException) -> None:
        """Go back to before the round, and wait a while: longer each time, until something goes well."""
        pause = self.errors.note(error)
        failed("training fails", error, round=self.done, failures=self.errors.count, again_in=pause)
        self._refreshed_at = -math.inf  # if a deployed node's refresh failed, it is still due
        before, self._before = self._before, None
        if before is not None:
            try:
                with torch.no_grad():
                    self.learner.population.load(before[0])
                self._state = before[1]
            except Exception as another:
                failed("model not put back", another, round=self.done)
        until = time.monotonic() + pause
        while not self._stopping.is_set() and self._replacement is None and time.monotonic() < until:
            self._wake.wait(max(0.0, min(_LOOK, until - time.monotonic())))
            self._wake.clear()
            self._save_if_due()

    def _local_round(self) -> None:
        self._site.learn(self.done + 1)
        self.done += 1
        if self.phase == "stage 1":
            self._publish(None)

    def _begin_stage2(self) -> None:
        self._enter_stage()
        self._network.publish(0)
        # Rounds with nobody to ask teach nothing; but a node whose neighbours are gone goes on.
        if self._method is not None and not self._lockstep:
            self._watch.wait_for_first(self.settings.life.wait, self._stopping)
        event("stage 2 begins", round=self.done, present=sorted(self._neighbours.present))
        if self._method is not None:
            self._state = self._method.refresh(self._site, None, 0, self._memory)
            self._refreshed()
        if self.settings.training.stage2_rounds == 0:
            self._settle()
            event("training is over", round=self.done)
        self._begun = True

    def _round(self) -> None:
        t = self.done - self.settings.training.stage1_rounds + 1
        self._network.round = t
        if self._method is None:
            self._site.learn(t)
            self._publish(t)
        else:
            assert self._state is not None
            self._state = self._method.round(self._site, self._state, t)
            replies = self._state.replies
            if replies is not None and not bool(replies.column.any()):
                # Nobody answered: that is not remembered for K rounds, since they may be there in the next.
                self._state = replace(self._state, replies=None)
            if self._method.due(self._site, t):
                self._refreshed()
            elif self._neighbours_changed():
                self._refresh()
        if t % self.settings.training.refresh == 0 and self.learner.refits:
            pseudo = (
                self._method.pseudo_labels(self._site, self._state) if self._method and self._state else None
            )
            self._site.population.refit(self._site.labelled.lists, pseudo)
        if self.done + 1 == self.rounds:  # it is deployed when it has looked at its neighbours once more
            self._finish()
        self.done += 1

    def _finish(self) -> None:
        self._network.publish(self.settings.training.stage2_rounds + 1)
        if self._method is not None and self._state is not None:
            self._state = self._method.finish(self._site, self._state)
            self._refreshed()
            self._settle()
        event("training is over", round=self.rounds, **self._findings())

    def _watch_neighbours(self) -> None:
        """Wait a little, and probe again if there is cause: time, a newcomer, one with an older model."""
        probes = self._method is not None and not self._lockstep  # in lockstep the comparison ends here
        due = self._refreshed_at + self.settings.life.refresh_every
        left = min(due - time.monotonic(), _LOOK) if probes else _LOOK
        if left > 0:
            self._wake.wait(left)
            self._wake.clear()
        if probes and not self._stopping.is_set() and (time.monotonic() >= due or self._neighbours_changed()):
            self._refresh()

    # -- trust ------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        state, t = self._state, self.done - self.settings.training.stage1_rounds
        assert self._method is not None
        assert state is not None
        if self.phase == "deployed" and self._settled:
            # Each refresh fits a little further. Over months that would end in blind faith, so a node whose
            # training is over starts each time from the trust model with which it ended.
            state = replace(state, memory=self._settled)
        self._state = self._method.refresh(self._site, state, t)
        self._refreshed()

    def _settle(self) -> None:
        """Training is over: this is the trust model from which all later refreshes start."""
        self._settled = {} if self._state is None else self._state.memory

    def _refreshed(self) -> None:
        """Make what the method has found known to those who answer clients."""
        assert self._state is not None
        self._refreshed_at = time.monotonic()
        self._state = replace(self._state, log=self._state.log.last(_LOG_LENGTH))
        self.trust = Trust.of(self._state, self._members, dict(self._network.probed))
        self._watch.note_probed(self.trust.probed)
        event("trust refreshed", round=self.done, **self._findings())

    def _findings(self) -> dict[str, Any]:
        weights = {name: round(weight, 4) for name, weight in self.trust.weights.items()}
        return {"trust": weights, "together": self.trust.together, "validation": self.trust.validation}

    def _neighbours_changed(self) -> bool:
        """Whether there is cause to probe out of turn; in lockstep nobody comes or goes."""
        if self._lockstep or time.monotonic() - self._refreshed_at < OUT_OF_TURN:
            return False
        return self._watch.sees_change(self.trust.probed)

    # -- the model --------------------------------------------------------------------------------

    def _publish(self, round_: int | None) -> None:
        self.version += 1
        self._snapshots.put(self.learner.snapshot(self.version), round_)

    def _replace_if_asked(self) -> None:
        if self._replacement is None:
            return
        model, done, errors = self._replacement
        self._replacement = None
        try:
            self._replace(model)
        except Exception as error:  # the caller's to know; the old model stays
            errors.append(error)
        finally:
            done.set()
        if not errors and self._state is not None:
            self._refresh()

    def _replace(self, model: Any) -> None:
        before = (self._site, self._state)
        try:
            with self.learner.replacing(model):
                if self._state is not None:
                    self._state = replace(self._state, pseudo=None)
                self._enter_stage()
                self.learner.snapshot(0).predict(self.data.inputs[:1])
        except Exception:
            self._site, self._state = before
            raise
        self._replaced = True
        self._publish(None)
        event("model replaced", version=self.version)
        if self._thread.is_alive():
            self.save()  # else the old one would come back, under the new one's version

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
        seen = {name: torch.from_numpy(ids) for name, ids in self._seen.items()}
        parts = {
            "ledger/": ledger, "population/": self.learner.population.state(), "method/": method,
            "settled/": self._settled, "seen/": seen,
        }  # fmt: skip
        tensors = {name: t for prefix, part in parts.items() for name, t in under(prefix, part).items()}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        node = NodeState(
            self.settings.name, self.done, self.version, self._names, self.trust.probed, self._fingerprint,
            counters, now, self._replaced, self.settings.trust.weighting,
        )  # fmt: skip
        try:
            write_state(self.settings.life.state, Saved(node, tensors))
            self.saved = {**self.saved, "round": self.done, "at": now}
        except Exception as error:  # whatever the disk, or what is to be saved, has against it
            self.saved = {**self.saved, "failures": self.saved["failures"] + 1}
            failed("state not saved", error, round=self.done)

    def _restore(self, saved: Saved) -> None:
        node, tensors = saved
        self._traffic.load(below("ledger/", tensors), node.counters, node.neighbours)
        self.done, self.version = min(node.done, self.rounds), node.version
        same_data, same_neighbours = node.data == self._fingerprint, node.neighbours == self._names
        same_weighting = node.weighting == self.settings.trust.weighting
        same_model = self._load_model(below("population/", tensors), same_data, node.replaced)
        if not same_model:  # version 0: neighbours who have probed a better model notice
            self.done, self.version = 0, 0
        elif not same_data:  # it has its last stage once more, to learn from it
            training = self.settings.training
            self.done = min(self.done, training.stage1_rounds if training.stage2_rounds else 0)
            event("data has changed", note="the model goes on, and learns from it", round=self.done)
        if self._method is not None:
            method = below("method/", tensors)
            self._state, self._memory = still_valid(
                method, same_model=same_model, same_neighbours=same_neighbours, same_data=same_data,
                same_weighting=same_weighting,
            )  # fmt: skip
            self._settled = below("settled/", tensors) if self._memory else {}
            if same_model and same_neighbours and same_weighting and "open" in method:
                # Until trust is learned anew.
                self.trust = Trust.of(TrustState.from_tensors(method), self._members, node.probed)
                self._network.probed = dict(node.probed)
        self.saved = {**self.saved, "round": node.done, "at": node.saved_at}
        event("state restored", round=self.done, version=self.version, saved_at=node.saved_at)

    def _load_model(self, tensors: Tensors, same_data: bool, replaced: bool) -> bool:
        """Whether the model goes on as it was; one that the owner had put in may not be NODE.toml's."""
        try:
            self.learner.load(tensors, same_data)
        except MISFITS:
            if not replaced:
                raise
            event("model of NODE.toml", note="the one put in by replace() is gone; training begins anew")
            self.learner = LiveLearner(self.settings, self.data)
            return False
        return True
