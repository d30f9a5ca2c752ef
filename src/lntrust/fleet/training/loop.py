"""What a live node does by itself, in one thread: learn, ask, trust, and learn from whom it trusts.

The rounds are the simulation's, and so is the method; but the clock is the node's own. Stage 1 is local
training. Then the neighbours are probed, and Stage 2 goes on as the paper has it, with whoever answers. When
training is over the neighbours are probed now and then, since they change, go, and come back.
"""

import math
import threading
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from lntrust.fleet.logs import event, failed
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.snapshots import SnapshotStore
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.training import trust_state as trusted
from lntrust.fleet.training.data import NodeData
from lntrust.fleet.training.learner import LiveLearner
from lntrust.fleet.training.network import LiveNetwork
from lntrust.fleet.training.occasions import OUT_OF_TURN, Occasions
from lntrust.fleet.training.state import MISFITS, Kept, Taken, fitting, write_state
from lntrust.fleet.training.trouble import Before, Trouble
from lntrust.fleet.training.trust_state import Trust
from lntrust.fleet.training.world import node_world
from lntrust.learners import Labelled
from lntrust.methods import Site, State
from lntrust.methods.base import below
from lntrust.methods.lntrust.method import LNTrust

_LOG_KEPT = 100  # refreshes whose trust is remembered
_LOOK = 0.5  # seconds between two looks around, once training is over


class TrainingLoop:
    """Rounds, one after another, from the last saved state on."""

    def __init__(
        self, settings: NodeSettings, data: NodeData, learner: LiveLearner, circle: Neighbours,
        books: TrafficCounters, shelf: SnapshotStore, taken: Taken,
    ) -> None:  # fmt: skip
        self.settings, self.data, self.learner = settings, data, learner
        self.circle, self.books, self.shelf = circle, books, shelf
        self.trust = Trust()
        self.done, self.version = 0, 0
        self.trouble = Trouble()
        self._before: Before | None = None  # the round that is under way
        self.saved: dict[str, Any] = {"round": None, "at": None, "failures": 0, "torn": None}
        self._fingerprint, self._seen = data.fingerprint, asdict(data.seen)
        self._state: State = {}
        self._settled: State = {}  # the trust model at the end of training
        self._names = [each.name for each in settings.neighbours]
        self._members = [settings.name, *self._names]
        self._world = node_world(settings, data)
        self._network = LiveNetwork(
            settings, self._world, lambda: self.learner.population, data, circle, self._publish
        )
        self._method = self._made_method()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._one_by_one = threading.Lock()  # who replaces the model
        self._replaced = False
        self._replacement: tuple[Any, threading.Event, list[BaseException]] | None = None
        self._occasions = Occasions(circle, settings.life.refresh_every)
        self._refreshed_at = self._saved_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="life", daemon=True)
        self._restore(taken)
        self._begun = "open" in self._state  # whether Stage 2 has begun
        self._enter()

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

    # -- the course of a life ---------------------------------------------------------------------

    def _made_method(self) -> LNTrust | None:
        """For the model as it is: one that is fitted again forgets by itself, and needs no twin."""
        if not self._names or not len(self.data.validation):
            return None
        less = {} if self.learner.takes_steps else {"look_back": None}
        return LNTrust(self.settings.trust.model_copy(update=less))

    def _enter(self) -> None:
        """The stage that the rounds done belong to; the model can be asked from now on."""
        training, stage = self.settings.training, 1 if self.done < self.settings.training.stage1_rounds else 2
        population = self.learner.population
        lists = self._world.labelled(stage, uses_validation=self._method is not None)
        labelled = Labelled(lists, population.labels, training, population.seeds, stage, population.device)
        self._site = Site(self._world, population, self._network, labelled)
        if self.learner.refits and (stage == 1 or "pseudo/ids" not in self._state):
            population.refit(lists)
        if self._method is not None and stage == 2:
            self._state = trusted.with_twin(self._state, population, self._method.settings)
        if self.shelf.empty:
            self._publish(None)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._replace_if_asked()
                self._step()
                self._before = None
                self._save_if_due()
                self.trouble.over()  # also if nothing was due: what has failed is due until it goes well
            except (Exception, SystemExit) as error:  # it goes on answering, and tries again
                self._failed(error)
            if self.settings.life.rest and self.phase != "deployed":
                self._stopping.wait(self.settings.life.rest)
        self.save()

    def _step(self) -> None:
        """What is next."""
        if self.phase == "deployed" and self._begun:
            self._stand()
            return
        self._before = Before(self.learner.population, self._state)
        if self.phase == "stage 1":
            self._local_round()
        elif not self._begun:
            self._begin_collaboration()
        else:
            self._round()

    def _failed(self, error: BaseException) -> None:
        """Go back to before the round, and wait a while: longer each time, until something goes well."""
        pause = self.trouble.note(error)
        failed("training fails", error, round=self.done, failures=self.trouble.failures, again_in=pause)
        self._refreshed_at = -math.inf  # if a deployed node's refresh failed, it is still due
        before, self._before = self._before, None
        if before is not None:
            try:
                self._state, self._method = before.put_back(self.learner.population), self._made_method()
            except Exception as another:
                failed("model not put back", another, round=self.done)
        until = time.monotonic() + pause
        while not self._stopping.is_set() and self._replacement is None and time.monotonic() < until:
            self._wake.wait(max(0.0, min(_LOOK, until - time.monotonic())))
            self._wake.clear()
            self._save_if_due()

    def _local_round(self) -> None:
        for batch in self._site.labelled.round(self.done):
            self._site.population.step(batch)
        self.done += 1
        if self.phase == "stage 1":
            self._publish(None)

    def _begin_collaboration(self) -> None:
        self._enter()
        self._network.announce(0)
        # Rounds with nobody to ask teach nothing; but a node whose neighbours are gone goes on.
        if self._method is not None and self.settings.network.clock != "lockstep":
            self._occasions.wait_for_somebody(self.settings.life.wait, self._stopping)
        event("stage 2 begins", round=self.done, present=sorted(self.circle.present))
        if self._method is not None:
            # A trust model that was kept goes on, with a circle that has changed.
            refresh, start = self._method.refresh, self._method.start
            self._state = refresh(self._site, self._state, 0) if self._state else start(self._site)
            self._refreshed()
        self._network.tell()
        if self.settings.training.stage2_rounds == 0:
            self._settle()
            event("training is over", round=self.done)
        self._begun = True

    def _round(self) -> None:
        t = self.done - self.settings.training.stage1_rounds + 1
        self._network.round = t
        if self._method is None:
            for batch in self._site.labelled.round(t - 1):
                self._site.population.step(batch)
            self._publish(t)
        else:
            due = self._method.due(self._site, t)
            if due and "probe/mask" in self._state and self._somebody_came(soonest=0.0):
                self._state = trusted.without(self._state, "probe/")  # everybody is probed, in turn or not
            self._state = self._method.round(self._site, self._state, t)
            self._state = trusted.asked_again(self._state)
            if due:
                self._refreshed()
            elif self._somebody_came():
                self._refresh()
        if t % self.settings.training.refresh == 0 and self.learner.refits:
            pseudo = self._method.pseudo_labels(self._site, self._state) if self._method else None
            self._site.population.refit(self._site.labelled.lists, pseudo)
        if self.done + 1 == self.rounds:  # it is deployed when the neighbours have been looked at once more
            self._finish()
        self.done += 1

    def _finish(self) -> None:
        self._network.announce(self.settings.training.stage2_rounds + 1)
        if self._method is not None:
            self._state = self._method.finish(self._site, self._state)
            self._refreshed()
            self._settle()
        self._network.tell()
        event("training is over", round=self.rounds, **self._told())

    def _stand(self) -> None:
        """Wait a little, and probe again if there is cause: time, a newcomer, one with an older model."""
        lockstep = self.settings.network.clock == "lockstep"  # the comparison ends here
        looks = self._method is not None and not lockstep
        due = self._refreshed_at + self.settings.life.refresh_every
        left = min(due - time.monotonic(), _LOOK) if looks else _LOOK
        if left > 0:
            self._wake.wait(left)
            self._wake.clear()
        if self._stopping.is_set() or not looks:
            return
        if time.monotonic() >= due or self._somebody_came():
            self._refresh()

    # -- trust ------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        assert self._method is not None
        t = self.done - self.settings.training.stage1_rounds
        state = trusted.without(self._state, "probe/")  # out of turn everybody is asked
        if self.phase == "deployed":
            # Each refresh fits a little further. Over months that would end in blind faith, so a node whose
            # training is over starts each time from the trust model with which it ended.
            state |= {f"memory/{name}": tensor for name, tensor in self._settled.items()}
        if self.settings.trust.calibrate:
            self._network.announce(self._network.round)
        self._state = self._method.refresh(self._site, state, t)
        self._network.tell()
        self._refreshed()

    def _settle(self) -> None:
        """Training is over: this is the trust model from which all later refreshes start."""
        self._settled = below("memory/", self._state)

    def _refreshed(self) -> None:
        """Make what the method has found known to those who answer clients."""
        self._refreshed_at = time.monotonic()
        state = self._state
        for name in [name for name in state if name.startswith("log/")]:
            state[name] = state[name][-_LOG_KEPT:]
        self.trust = Trust.of(state, self._members, dict(self._network.probed))
        self._occasions.probed(self.trust.probed)
        event("trust refreshed", round=self.done, **self._told())

    def _told(self) -> dict[str, Any]:
        weights = {name: round(weight, 4) for name, weight in self.trust.weights.items()}
        return {"trust": weights, "together": self.trust.together, "validation": self.trust.validation}

    def _somebody_came(self, soonest: float = OUT_OF_TURN) -> bool:
        """Whether there is cause to probe out of turn; in lockstep nobody comes or goes."""
        if self.settings.network.clock == "lockstep" or time.monotonic() - self._refreshed_at < soonest:
            return False
        return self._occasions.somebody_came(self.trust.probed)

    # -- the model --------------------------------------------------------------------------------

    def _publish(self, round_: int | None) -> None:
        self.version += 1
        self.shelf.put(self.learner.snapshot(self.version), round_)

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
        if not errors and self._method is not None and "open" in self._state:
            self._refresh()

    def _replace(self, model: Any) -> None:
        before = (self._site, self._state, self._method)
        try:
            with self.learner.replacing(model):
                self._state = trusted.without(self._state, *trusted.OF_ANOTHER_MODEL)
                self._method = self._made_method()
                self._enter()
                self.learner.snapshot(0).predict(self.data.inputs[:1])
        except Exception:
            self._site, self._state, self._method = before
            raise
        self._replaced = True
        self._publish(None)
        event("model replaced", version=self.version)
        if self._thread.is_alive():
            self.save()  # else the old one would come back, under the new one's version

    # -- keeping ----------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        if time.monotonic() - self._saved_at >= self.settings.life.save_every:
            self.save()

    def save(self) -> None:
        """Write down all that a restart needs. A disk that is full is no reason to stop."""
        self._saved_at = time.monotonic()
        ledger, counters = self.books.state()
        tensors = {f"ledger/{name}": t for name, t in ledger.items()}
        tensors |= {f"population/{name}": t for name, t in self.learner.population.state().items()}
        tensors |= {f"method/{name}": t for name, t in self._state.items()}
        tensors |= {f"settled/{name}": t for name, t in self._settled.items()}
        tensors |= {f"seen/{name}": torch.from_numpy(ids) for name, ids in self._seen.items()}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kept = Kept(
            self.settings.name, self.done, self.version, self._names, self.trust.probed, self._fingerprint,
            counters, now, self._replaced, self.settings.trust.weighting,
        )  # fmt: skip
        try:
            write_state(self.settings.life.state, kept, tensors)
            self.saved = {**self.saved, "round": self.done, "at": now}
        except Exception as error:  # whatever the disk, or what is to be kept, has against it
            self.saved = {**self.saved, "failures": self.saved["failures"] + 1}
            failed("state not saved", error, round=self.done)

    def _restore(self, taken: Taken) -> None:
        found, self.saved["torn"] = taken
        if found is not None:
            with fitting(self.settings.life.state):
                self._go_on(*found)

    def _go_on(self, kept: Kept, tensors: dict[str, Tensor]) -> None:
        self.books.load(below("ledger/", tensors), kept.counters, kept.neighbours)
        self.done, self.version = min(kept.done, self.rounds), kept.version
        same_data, same_circle = kept.data == self._fingerprint, kept.neighbours == self._names
        same_weighting = kept.weighting == self.settings.trust.weighting
        goes_on = self._load_model(below("population/", tensors), same_data, kept.replaced)
        if not goes_on:  # version 0: neighbours who have probed a better model notice
            self.done, self.version = 0, 0
        elif not same_data:  # it has its last stage once more, to learn from it
            training = self.settings.training
            self.done = min(self.done, training.stage1_rounds if training.stage2_rounds else 0)
            event("data has changed", note="the model goes on, and learns from it", round=self.done)
        if not self.settings.trust.calibrate:
            self.learner.population.temperature = None
        if self._method is not None:
            before = below("method/", tensors)
            self._state = trusted.still_true(
                before, same_model=goes_on, same_circle=same_circle, same_data=same_data,
                same_weighting=same_weighting,
            )  # fmt: skip
            self._settled = below("settled/", tensors) if below("memory/", self._state) else {}
            if goes_on and same_circle and same_weighting and "closed votes" in before:
                self.trust = Trust.of(before, self._members, kept.probed)  # until it is learned anew
                self._network.probed = dict(kept.probed)
        self.saved = {**self.saved, "round": kept.done, "at": kept.saved_at}
        event("state restored", round=self.done, version=self.version, saved_at=kept.saved_at)

    def _load_model(self, tensors: dict[str, Tensor], same_data: bool, replaced: bool) -> bool:
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
