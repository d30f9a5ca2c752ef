"""What a live node does by itself, in one thread: learn, ask, trust, and learn from whom it trusts.

The rounds are the simulation's, and so is the method; but the clock is the node's own. Stage 1 is local
training. Then the neighbours are probed, and Stage 2 goes on as the paper has it, with whoever answers. When
training is over the neighbours are probed now and then, since they change, go, and come back.
"""

import logging
import threading
import time
from datetime import UTC, datetime
from typing import Any

from torch import Tensor

from lntrust.errors import LNTrustError
from lntrust.fleet import trusted
from lntrust.fleet.books import Books
from lntrust.fleet.circle import Circle
from lntrust.fleet.data import NodeData
from lntrust.fleet.learner import LiveLearner
from lntrust.fleet.logs import event, failed
from lntrust.fleet.network import LiveNetwork
from lntrust.fleet.settings import NodeSettings
from lntrust.fleet.shelf import Shelf
from lntrust.fleet.state import Kept, clear_leftovers, read_state, write_state
from lntrust.fleet.trusted import Trust
from lntrust.fleet.world import node_world
from lntrust.learners import Labelled
from lntrust.methods import Site, State
from lntrust.methods.base import below
from lntrust.methods.lntrust import LNTrust

_LOG_KEPT = 100  # refreshes whose trust is remembered
_LOOK = 0.5  # seconds between two looks around, once training is over
_OUT_OF_TURN = 2.0  # seconds at least between two refreshes because somebody came


class Life:
    """Rounds, one after another, from the last saved state on."""

    def __init__(
        self, settings: NodeSettings, data: NodeData, learner: LiveLearner, circle: Circle, books: Books,
        shelf: Shelf,
    ) -> None:  # fmt: skip
        self.settings, self.data, self.learner = settings, data, learner
        self.circle, self.books, self.shelf = circle, books, shelf
        self.trust = Trust()
        self.done, self.version = 0, 0
        self.error: str | None = None
        self.saved: dict[str, Any] = {"round": None, "at": None, "failures": 0}
        self._fingerprint = data.fingerprint
        self._state: State = {}
        self._settled: State = {}  # the trust model at the end of training
        self._names = [each.name for each in settings.neighbours]
        self._world = node_world(settings, data)
        self._network = LiveNetwork(
            settings, self._world, lambda: self.learner.population, data, circle, books, self._publish
        )
        self._method = self._made_method()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._one_by_one = threading.Lock()  # who replaces the model
        self._replaced = False
        self._replacement: tuple[Any, threading.Event, list[BaseException]] | None = None
        self._believed: dict[str, tuple[float, float]] = {}  # from when a neighbour may cause a refresh again
        self._probed_at: dict[str, int] = {}  # at which of its appearances each was probed
        self._refreshed_at = self._saved_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="life", daemon=True)
        self._restore()
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
        try:
            if self.phase != "stage 1" and "open" not in self._state:
                self._begin_collaboration()
            while not self._stopping.is_set():
                self._replace_if_asked()
                if self.phase == "stage 1":
                    self._local_round()
                elif self.phase == "stage 2":
                    self._round()
                else:
                    self._stand()
                self._save_if_due()
                if self.settings.life.rest and self.phase != "deployed":
                    self._stopping.wait(self.settings.life.rest)
        except Exception as error:  # the node goes on answering, and keeps its counters
            self.error = f"{type(error).__name__}: {error}"
            failed("training has stopped", error, round=self.done)
            while not self._stopping.wait(_LOOK):
                self._save_if_due()
        self.save()

    def _local_round(self) -> None:
        for batch in self._site.labelled.round(self.done):
            self._site.population.step(batch)
        self.done += 1
        if self.phase != "stage 1":
            self._begin_collaboration()
        else:
            self._publish(None)

    def _begin_collaboration(self) -> None:
        self._enter()
        self._network.announce(0)
        self._wait_for_somebody()
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

    def _wait_for_somebody(self) -> None:
        """Rounds with nobody to ask teach nothing; but a node whose neighbours are gone goes on."""
        if self._method is None or self.settings.network.clock == "lockstep":
            return
        deadline = time.monotonic() + self.settings.life.wait
        while not self.circle.present and time.monotonic() < deadline and not self._stopping.wait(0.05):
            pass
        if not self.circle.present:
            event("nobody is there", level=logging.WARNING, note="stage 2 begins alone")

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
                self._state = trusted.without(
                    self._state, "probe/"
                )  # then everybody is probed, in turn or not
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
        """Wait until there is a reason to probe again: time, a newcomer, somebody with an older model."""
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
        self.trust = self._trust_of(state, dict(self._network.probed))
        self._probed_at = {name: self.circle.appearances(name) for name in self.trust.probed}
        event("trust refreshed", round=self.done, **self._told())

    def _trust_of(self, state: State, probed: dict[str, int]) -> Trust:
        return Trust.of(state, [self.settings.name, *self._names], probed)

    def _told(self) -> dict[str, Any]:
        weights = {name: round(weight, 4) for name, weight in self.trust.weights.items()}
        return {"trust": weights, "together": self.trust.together, "validation": self.trust.validation}

    def _somebody_came(self, soonest: float = _OUT_OF_TURN) -> bool:
        """Whether a neighbour is there that was not probed as it is now: it is new, was away, or is older.

        One that gives cause again and again is believed less and less often.
        """
        now = time.monotonic()
        if self.settings.network.clock == "lockstep" or now - self._refreshed_at < soonest:
            return False
        came = False
        for name in set(self.circle.chosen()) & self.circle.present:
            until, pause = self._believed.get(name, (0.0, _OUT_OF_TURN))
            if now >= until and self._gives_cause(name):
                came = True
                self._believed[name] = (now + pause, min(2 * pause, self.settings.life.refresh_every))
        return came

    def _gives_cause(self, name: str) -> bool:
        version, probed = self.circle.members[name].version, self.trust.probed.get(name)
        if probed is None or (version is not None and version < probed):
            return True
        appearance = self.circle.appearances(name)
        return appearance != self._probed_at.get(name, appearance)

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
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kept = Kept(
            self.settings.name, self.done, self.version, self._names, self.trust.probed, self._fingerprint,
            counters, now, self._replaced, self.settings.trust.weighting,
        )  # fmt: skip
        try:
            write_state(self.settings.life.state, kept, tensors)
            self.saved = {**self.saved, "round": self.done, "at": now}
        except LNTrustError as error:
            self.saved = {**self.saved, "failures": self.saved["failures"] + 1}
            failed("state not saved", error, round=self.done)

    def _restore(self) -> None:
        clear_leftovers(self.settings.life.state)
        found = read_state(self.settings.life.state, self.settings.name)
        if found is None:
            return
        kept, tensors = found
        self.books.load(below("ledger/", tensors), kept.counters, kept.neighbours)
        self.done, self.version = min(kept.done, self.rounds), kept.version
        same_data, same_circle = kept.data == self._fingerprint, kept.neighbours == self._names
        goes_on = self._load_model(below("population/", tensors), same_data, kept.replaced)
        if not goes_on:  # version 0: neighbours who have probed a better model notice
            self.done, self.version = 0, 0
        if not self.settings.trust.calibrate:
            self.learner.population.temperature = None
        method = trusted.still_true(
            below("method/", tensors), same_model=goes_on, same_circle=same_circle, same_data=same_data,
            same_weighting=kept.weighting == self.settings.trust.weighting,
        )  # fmt: skip
        if self._method is not None and method:
            self._state = method
            self._settled = below("settled/", tensors) if below("memory/", method) else {}
            if same_circle and "closed votes" in method:
                self.trust = self._trust_of(method, kept.probed)
                self._network.probed = dict(kept.probed)
        self.saved = {"round": kept.done, "at": kept.saved_at, "failures": 0}
        event("state restored", round=self.done, version=self.version, saved_at=kept.saved_at)

    def _load_model(self, tensors: dict[str, Tensor], same_data: bool, replaced: bool) -> bool:
        """Whether the model goes on as it was; one that the owner had put in may not be NODE.toml's."""
        if not same_data:
            event("data has changed", note="estimators are fitted anew")
            tensors = {name: t for name, t in tensors.items() if "/fit/" not in name}
        try:
            self.learner.population.load(tensors)
            return True
        except (KeyError, RuntimeError, ValueError, IndexError) as error:
            if replaced:
                event("model of NODE.toml", note="the one put in by replace() is gone; training begins anew")
                self.learner = LiveLearner(self.settings, self.data)
                return False
            raise LNTrustError(
                f"{self.settings.life.state}: holds another model's state ({type(error).__name__}: {error}); "
                "move it away, or set life.state to a new folder"
            ) from None
