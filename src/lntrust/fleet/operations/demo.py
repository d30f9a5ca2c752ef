"""The demonstration: a fleet of processes that learn from each other, lose two of them, and go on answering.

All is real: processes of their own, certificates on both ends of every link, clients over HTTP, and deaths
by SIGKILL. The supervisor alone reads the test sets, and asks every question twice: the node with those it
trusts, and the node by itself.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.demo_data import STAGE1, STAGE2, Made, make
from lntrust.fleet.operations.supervisor import Fleet, FleetError
from lntrust.fleet.training.state import read_state

PHASES = ("all up", "two down", "one back")
KILL_AT = STAGE1 + STAGE2 // 4  # rounds after which two are killed
_DOWN, _AFTER = 6.0, 8.0  # seconds at least with two down, and after one has come back
_START, _TRAIN, _RETURN = 90.0, 120.0, 60.0  # seconds at most for what is waited for
_POLL, _PAUSE = 0.4, 0.02  # seconds between two looks at all nodes, and between two questions

Statuses = dict[str, dict[str, Any] | None]


@dataclass(frozen=True)
class Question:
    """One test input, asked of one node: what came back."""

    phase: str
    node: str
    error: str | None = None  # no answer, and why
    right: bool = False
    right_alone: bool = False
    seconds: float = 0.0  # until the ensemble's answer was there
    members: int = 0  # who is behind it, the node included


@dataclass(frozen=True)
class PhaseResult:
    """How answers held up in one phase. Shares are of the questions answered."""

    phase: str
    questions: int
    answered: int
    deployed: float
    alone: float
    p50: float  # seconds
    p99: float
    members: float  # mean


@dataclass(frozen=True)
class NodeResult:
    """One node in the end; accuracies on its own test set. None: it is down."""

    name: str
    model: str
    alone: float | None = None
    deployed: float | None = None
    members: int | None = None  # who answered, the node included
    own_weight: float | None = None
    round: int | None = None
    bytes: dict[str, dict[str, int]] | None = None  # in and out, by kind


@dataclass(frozen=True)
class DemoResult:
    nodes: list[NodeResult]
    phases: list[PhaseResult]
    killed: tuple[str, str]  # the second one stays down
    saved_round: int  # in the state that the first one left on disk
    resumed_round: int  # when it first answered again
    seconds: float
    errors: list[str]  # of questions
    ids: list[int] = field(default_factory=list)  # of all processes, which have ended


@dataclass
class Show:
    """What the demonstration tells while it goes on; by default nobody listens."""

    said: Callable[[str], None] = lambda text: None
    nodes: Callable[[Statuses], None] = lambda statuses: None


class Asker:
    """A client that never rests: test inputs, one after another, to every node that it knows."""

    def __init__(self, fleet: Fleet, made: Iterable[Made]) -> None:
        self._fleet, self._made = fleet, {each.name: each for each in made}
        self.questions: list[Question] = []
        self._phase, self._names = PHASES[0], list(self._made)
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="asker", daemon=True)

    def __enter__(self) -> "Asker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def turn(self, phase: str, names: Iterable[str]) -> None:
        """From now on these are asked; returns when no other question is under way."""
        with self._lock:
            self._phase, self._names = phase, list(names)

    def _run(self) -> None:
        asked = 0
        while not self._stopping.wait(_PAUSE):
            with self._lock:
                name = self._names[asked % len(self._names)]
                self.questions.append(self._ask(self._made[name], asked))
            asked += 1

    def _ask(self, node: Made, number: int) -> Question:
        row = number // len(self._made) % len(node.test_y)
        x, label = node.test_x[row : row + 1], str(node.test_y[row])
        begun = time.monotonic()
        try:
            answer = self._fleet.predict(node.name, x)
            seconds = time.monotonic() - begun
            alone = self._fleet.predict(node.name, x, "self")
        except Exception as error:  # whatever it is, it is no answer
            return Question(self._phase, node.name, f"node {node.name}: {type(error).__name__}: {error}")
        return Question(
            self._phase, node.name, None, answer["label"] == [label], alone["label"] == [label], seconds,
            len(answer["weights"]),
        )  # fmt: skip


class _Course:
    """What happens, one after another."""

    def __init__(self, fleet: Fleet, made: list[Made], show: Show) -> None:
        self.fleet, self.made, self.show = fleet, made, show
        self.names = [each.name for each in made]
        self.killed = (self.names[1], self.names[-1])

    def run(self) -> DemoResult:
        begun = time.monotonic()
        self.show.said(f"starting {len(self.names)} processes")
        for name in self.names:
            self.fleet.start(name)
        self._wait("all answer", _START, lambda s: all(each is not None for each in s.values()))
        with Asker(self.fleet, self.made) as asker:
            self.show.said("all answer; a client asks them all the time")
            self._wait(f"all are past round {KILL_AT}", _TRAIN, self._can_kill)
            saved = self._kill(asker)
            self._wait("", _DOWN)
            resumed = self._bring_back(asker)
            self._wait("", _AFTER)
            self._wait("all have finished training", _TRAIN, _all_deployed)
        results = [self._result(each) for each in self.made]
        self.show.said("asking the nodes to end")
        for name, code in self.fleet.stop_all().items():
            if code != 0:
                raise FleetError(
                    f"node {name}: ended with code {code} when told to end; its log ends with\n"
                    f"{self.fleet.log_tail(name)}"
                )
        errors = [f"{q.phase}: {q.error}" for q in asker.questions if q.error is not None]
        phases = [_phase(phase, asker.questions) for phase in PHASES]
        seconds = time.monotonic() - begun
        return DemoResult(results, phases, self.killed, saved, resumed, seconds, errors, list(self.fleet.ids))

    def _can_kill(self, statuses: Statuses) -> bool:
        """All are in the middle of Stage 2, and who comes back has saved that."""
        rounds = [each["round"] for each in statuses.values() if each is not None]
        victim = statuses[self.killed[0]]
        saved = -1 if victim is None else victim["saved"]["round"] or -1
        return len(rounds) == len(self.names) and min(rounds) >= KILL_AT and saved > STAGE1

    def _kill(self, asker: Asker) -> int:
        """SIGKILL for two; returns the round that the first one has saved."""
        first, second = self.killed
        asker.turn(PHASES[1], [name for name in self.names if name not in self.killed])
        for name in self.killed:
            self.fleet.kill(name)
        found = read_state(self.fleet.folders[first] / "state", first)
        if found is None:
            raise FleetError(
                f"node {first}: was killed, and has left no state in {self.fleet.folders[first]}"
            )
        self.show.said(f"killed {first} and {second}; the others are asked on")
        return found[0].done

    def _bring_back(self, asker: Asker) -> int:
        """Start the first again; returns its round as it first answers."""
        back = self.killed[0]
        self.show.said(f"bringing {back} back")
        self.fleet.start(back)
        statuses = self._wait(f"{back} answers again", _RETURN, lambda s: s[back] is not None)
        told = statuses[back]
        assert told is not None
        asker.turn(PHASES[2], [name for name in self.names if name != self.killed[1]])
        self.show.said(f"{back} goes on at round {told['round']}")
        return int(told["round"])

    def _wait(self, what: str, seconds: float, until: Callable[[Statuses], bool] | None = None) -> Statuses:
        """Look at the nodes until something is so, or, if nothing is waited for, for that time."""
        deadline = time.monotonic() + seconds
        while True:
            self.fleet.check()
            statuses = self.fleet.statuses()
            self.show.nodes(statuses)
            for name, each in statuses.items():
                if each is not None and each["error"]:
                    raise FleetError(f"node {name}: training fails: {each['error']}")
            if until is not None and until(statuses):
                return statuses
            if time.monotonic() >= deadline:
                if until is None:
                    return statuses
                raise FleetError(f"waited {seconds:g} s until {what}, in vain: {_standing(statuses)}")
            time.sleep(min(_POLL, max(0.0, deadline - time.monotonic())))

    def _result(self, node: Made) -> NodeResult:
        if node.name not in self.fleet.alive:
            return NodeResult(node.name, node.model)
        together = self.fleet.predict(node.name, node.test_x)
        by_itself = self.fleet.predict(node.name, node.test_x, "self")
        status, weights = self.fleet.status(node.name), together["weights"]
        return NodeResult(
            node.name, node.model, _accuracy(by_itself, node), _accuracy(together, node), len(weights),
            weights.get(node.name, 0.0), status["round"], status["bytes"],
        )  # fmt: skip


def _accuracy(answer: dict[str, Any], node: Made) -> float:
    return float(np.mean(np.array(answer["label"]) == node.test_y.astype(str)))


def _all_deployed(statuses: Statuses) -> bool:
    return all(each is not None and each["phase"] == "deployed" for each in statuses.values())


def _standing(statuses: Statuses) -> str:
    return ", ".join(
        f"{name} {'does not answer' if each is None else 'at round ' + str(each['round'])}"
        for name, each in statuses.items()
    )


def _phase(phase: str, questions: list[Question]) -> PhaseResult:
    asked = [q for q in questions if q.phase == phase]
    had = [q for q in asked if q.error is None]
    if not had:
        raise FleetError(f"{phase}: none of {len(asked)} questions was answered; the client could not ask")
    seconds = np.array([q.seconds for q in had])
    return PhaseResult(
        phase, len(asked), len(had), float(np.mean([q.right for q in had])),
        float(np.mean([q.right_alone for q in had])), float(np.quantile(seconds, 0.5)),
        float(np.quantile(seconds, 0.99)), float(np.mean([q.members for q in had])),
    )  # fmt: skip


def run_demo(folder: Path, nodes: int, show: Show | None = None) -> DemoResult:
    """The whole of it, in a folder that is new or empty. No process is left, however it ends."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LNTrustError(f"{folder}: is not empty; the demonstration wants a new folder, or an empty one")
    made = make(folder, nodes)
    with Fleet({each.name: each.folder for each in made}) as fleet:
        return _Course(fleet, made, show or Show()).run()
