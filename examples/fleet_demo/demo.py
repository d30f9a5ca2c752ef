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

from examples.fleet_demo.nodes import STAGE1, STAGE2, DemoNode, make_nodes
from examples.fleet_demo.supervisor import Fleet, FleetError
from lntrust.core.errors import LNTrustError
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


class Client:
    """Never rests: asks every node that it knows about its test inputs, one after another."""

    def __init__(self, fleet: Fleet, nodes: Iterable[DemoNode]) -> None:
        self._fleet, self._nodes = fleet, {each.name: each for each in nodes}
        self.questions: list[Question] = []
        self._phase, self._names = PHASES[0], list(self._nodes)
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="client", daemon=True)

    def __enter__(self) -> "Client":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def turn_to(self, phase: str, names: Iterable[str]) -> None:
        """Ask these from now on; returns when no other question is under way."""
        with self._lock:
            self._phase, self._names = phase, list(names)

    def _run(self) -> None:
        asked = 0
        while not self._stopping.wait(_PAUSE):
            with self._lock:
                name = self._names[asked % len(self._names)]
                self.questions.append(self._ask(self._nodes[name], asked // len(self._nodes)))
            asked += 1

    def _ask(self, node: DemoNode, number: int) -> Question:
        row = number % len(node.test_y)
        x, label = node.test_x[row : row + 1], str(node.test_y[row])
        begun = time.monotonic()
        try:
            answer = self._fleet.predict(node.name, x)
            seconds = time.monotonic() - begun
            alone = self._fleet.predict(node.name, x, "self")
        except Exception as error:  # whatever it is, it is no answer
            return Question(self._phase, node.name, f"node {node.name}: {type(error).__name__}: {error}")
        right, right_alone = answer["label"] == [label], alone["label"] == [label]
        return Question(self._phase, node.name, None, right, right_alone, seconds, len(answer["weights"]))


def run_demo(
    folder: Path,
    count: int,
    say: Callable[[str], None] = lambda text: None,
    look: Callable[[Statuses], None] = lambda statuses: None,
) -> DemoResult:
    """The whole of it, in a folder that is new or empty. No process is left, however it ends.

    `say` hears what happens, `look` sees the nodes' statuses again and again.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LNTrustError(f"{folder}: is not empty; the demonstration wants a new folder, or an empty one")
    nodes = make_nodes(folder, count)
    with Fleet({each.name: each.folder for each in nodes}) as fleet:
        return _Demo(fleet, nodes, say, look).run()


@dataclass
class _Demo:
    """What happens, one after another."""

    fleet: Fleet
    nodes: list[DemoNode]
    say: Callable[[str], None]
    look: Callable[[Statuses], None]

    def __post_init__(self) -> None:
        self.names = [each.name for each in self.nodes]
        self.killed = (self.names[1], self.names[-1])

    def run(self) -> DemoResult:
        begun = time.monotonic()
        self.say(f"starting {len(self.names)} processes")
        for name in self.names:
            self.fleet.start(name)
        self._wait("all answer", _START, lambda s: all(each is not None for each in s.values()))
        with Client(self.fleet, self.nodes) as client:
            self.say("all answer; a client asks them all the time")
            self._wait(f"all are past round {KILL_AT}", _TRAIN, self._can_kill)
            saved = self._kill(client)
            self._wait("", _DOWN)
            resumed = self._bring_back(client)
            self._wait("", _AFTER)
            self._wait("all have finished training", _TRAIN, _all_deployed)
        results = [self._result(each) for each in self.nodes]
        self.say("asking the nodes to end")
        for name, code in self.fleet.stop_all().items():
            if code != 0:
                tail = self.fleet.log_tail(name)
                raise FleetError(
                    f"node {name}: ended with code {code} when told to end; its log ends with\n{tail}"
                )
        errors = [f"{q.phase}: {q.error}" for q in client.questions if q.error is not None]
        phases = [_phase(phase, client.questions) for phase in PHASES]
        seconds = time.monotonic() - begun
        return DemoResult(results, phases, self.killed, saved, resumed, seconds, errors, list(self.fleet.ids))

    def _can_kill(self, statuses: Statuses) -> bool:
        """All are in the middle of Stage 2, and who comes back has saved that."""
        rounds = [each["round"] for each in statuses.values() if each is not None]
        victim = statuses[self.killed[0]]
        saved = -1 if victim is None else victim["saved"]["round"] or -1
        return len(rounds) == len(self.names) and min(rounds) >= KILL_AT and saved > STAGE1

    def _kill(self, client: Client) -> int:
        """SIGKILL for two; returns the round that the first one has saved."""
        first, second = self.killed
        client.turn_to(PHASES[1], [name for name in self.names if name not in self.killed])
        for name in self.killed:
            self.fleet.kill(name)
        folder = self.fleet.folders[first]
        found = read_state(folder / "state", first)
        if found is None:
            raise FleetError(f"node {first}: was killed, and has left no state in {folder}")
        self.say(f"killed {first} and {second}; the others are asked on")
        return found.node.done

    def _bring_back(self, client: Client) -> int:
        """Start the first again; returns its round as it first answers."""
        back, gone = self.killed
        self.say(f"bringing {back} back")
        self.fleet.start(back)
        status = self._wait(f"{back} answers again", _RETURN, lambda s: s[back] is not None)[back]
        assert status is not None
        client.turn_to(PHASES[2], [name for name in self.names if name != gone])
        self.say(f"{back} goes on at round {status['round']}")
        return int(status["round"])

    def _wait(self, what: str, seconds: float, until: Callable[[Statuses], bool] | None = None) -> Statuses:
        """Look at the nodes until something is so, or, if nothing is waited for, for that time."""
        deadline = time.monotonic() + seconds
        while True:
            self.fleet.check()
            statuses = self.fleet.statuses()
            self.look(statuses)
            for name, each in statuses.items():
                if each is not None and each["error"]:
                    raise FleetError(f"node {name}: training fails: {each['error']}")
            late = time.monotonic() >= deadline
            if until(statuses) if until is not None else late:
                return statuses
            if late:
                raise FleetError(f"waited {seconds:g} s until {what}, in vain: {_standing(statuses)}")
            time.sleep(min(_POLL, max(0.0, deadline - time.monotonic())))

    def _result(self, node: DemoNode) -> NodeResult:
        if node.name not in self.fleet.alive:
            return NodeResult(node.name, node.model)
        together = self.fleet.predict(node.name, node.test_x)
        by_itself = self.fleet.predict(node.name, node.test_x, "self")
        status, weights = self.fleet.status(node.name), together["weights"]
        return NodeResult(
            node.name, node.model, _accuracy(by_itself, node), _accuracy(together, node), len(weights),
            weights.get(node.name, 0.0), status["round"], status["bytes"],
        )  # fmt: skip


def _accuracy(answer: dict[str, Any], node: DemoNode) -> float:
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
    right, alone, members = (
        float(np.mean(each)) for each in zip(*((q.right, q.right_alone, q.members) for q in had), strict=True)
    )
    p50, p99 = np.quantile([q.seconds for q in had], [0.5, 0.99]).tolist()
    return PhaseResult(phase, len(asked), len(had), right, alone, p50, p99, members)
