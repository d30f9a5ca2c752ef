"""Minutes of random kills, freezes and restarts: `python -m benchmarks.soak --minutes 10`.

Eight node processes with mixed models train and answer, while one after another is killed (SIGKILL), frozen
(SIGSTOP) or ended (SIGTERM) and comes back; up to three are away at a time. Clients ask all the while. The
log has a line for everything that was done and seen, and a summary at the end: questions and answers, states
on disk, memory. Exit code 1 if a question to a living node went unanswered, a state was lost, or memory grew.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from examples.fleet_demo.nodes import DemoNode, make_nodes
from examples.fleet_demo.supervisor import Fleet
from lntrust.core.errors import LNTrustError
from lntrust.experiment.store import versions
from lntrust.fleet.training.state import read_state

NODES = 8
AWAY = 3  # at most so many are away at a time
SPARED = 2  # nodes that are never touched: their memory is watched
GROWTH = 0.10  # more than this, between the second fifth of the time and the last, is growth


@dataclass
class Log:
    """One JSON object a line, with the seconds since the start."""

    file: TextIO
    since: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: str, **fields: Any) -> None:
        line = json.dumps({"t": round(time.monotonic() - self.since, 2), "event": event, **fields})
        with self.lock:
            self.file.write(line + "\n")
            self.file.flush()


class Clients(threading.Thread):
    """Ask whoever is up, one question after another. Who is taken away meanwhile is excused."""

    def __init__(self, fleet: Fleet, made: dict[str, DemoNode], log: Log) -> None:
        super().__init__(daemon=True)
        self.fleet, self.made, self.log = fleet, made, log
        self.up: dict[str, int] = {}  # nodes that can be asked, and how often they have come
        self.asked = self.excused = 0
        self.unanswered: list[str] = []
        self.right = {"ensemble": 0, "self": 0}
        self.seconds: list[float] = []
        self.members: list[int] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        rng = random.Random(1)
        while not self.stopping.wait(0.02):
            up = dict(self.up)
            if up:
                name = rng.choice(sorted(up))
                self.ask(name, up[name], rng)

    def ask(self, name: str, coming: int, rng: random.Random) -> None:
        made = self.made[name]
        k = rng.randrange(len(made.test_y))
        x, label = made.test_x[k : k + 1], str(made.test_y[k])
        self.asked += 1
        since = time.monotonic()
        try:
            together = self.fleet.predict(name, x)
            took = time.monotonic() - since
            alone = self.fleet.predict(name, x, "self")
        except LNTrustError as error:
            if self.up.get(name) == coming:
                self.unanswered.append(f"{name}: {error}")
                self.log("unanswered", node=name, error=str(error))
            else:
                self.excused += 1
            return
        self.seconds.append(took)
        self.members.append(len(together["weights"]))
        self.right["ensemble"] += together["label"] == [label]
        self.right["self"] += alone["label"] == [label]


def rss(process: int) -> int:
    """Resident memory in bytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096


def prepare(folder: Path, count: int) -> dict[str, DemoNode]:
    """The demonstration's nodes; but they train on, slowly, for as long as the soak takes."""
    return {each.name: each for each in make_nodes(folder, count, rest=0.5, stage2=1_000_000)}


class Soak:
    def __init__(self, fleet: Fleet, made: dict[str, DemoNode], log: Log, seed: int) -> None:
        self.fleet, self.made, self.log, self.rng = fleet, made, log, random.Random(seed)
        self.clients = Clients(fleet, made, log)
        self.comings = dict.fromkeys(made, 0)
        self.pids: dict[str, int] = {}
        self.away: dict[str, tuple[float, str]] = {}  # until when, and how it went
        self.kept: dict[str, tuple[int, int]] = {}  # round and version in the state it left
        self.done = {"kill": 0, "freeze": 0, "stop": 0}
        self.lost: list[str] = []
        self.memory: dict[str, list[tuple[float, int]]] = {name: [] for name in made}

    def come(self, name: str) -> None:
        """Wait until a node answers; what it had on disk, it must have again."""
        deadline = time.monotonic() + 90
        while True:
            try:
                status = self.fleet.status(name)
                break
            except LNTrustError:
                self.fleet.check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        if name in self.kept:
            round_, version = self.kept.pop(name)
            whole = status["round"] >= round_ and status["model_version"] > version
            if not whole:
                self.lost.append(f"{name}: state had round {round_}, version {version}; came with {status}")
            self.log("back", node=name, state_round=round_, round=status["round"], whole=whole)
        self.comings[name] += 1
        self.clients.up[name] = self.comings[name]

    def take(self) -> None:
        """Somebody goes, for a few seconds."""
        name = self.rng.choice(sorted(set(self.made) - set(self.away) - set(list(self.made)[:SPARED])))
        how = self.rng.choice(("kill", "kill", "freeze", "stop"))
        self.clients.up.pop(name, None)
        time.sleep(0.05)
        if how == "freeze":
            self.fleet.freeze(name)
        elif how == "kill":
            self.fleet.kill(name)
        else:
            self.fleet.stop(name)
        if how != "freeze":
            kept = read_state(self.made[name].folder / "state", name)  # raises if it is not whole
            if kept is not None:
                self.kept[name] = (kept.node.done, kept.node.version)
        self.done[how] += 1
        self.away[name] = (time.monotonic() + self.rng.uniform(2, 10), how)
        self.log(how, node=name, away=sorted(self.away))

    def bring_back(self) -> None:
        for name, (until, how) in list(self.away.items()):
            if time.monotonic() < until:
                continue
            if how == "freeze":
                self.fleet.thaw(name)
            else:
                self.pids[name] = self.fleet.start(name)
            del self.away[name]
            self.come(name)

    def run(self, seconds: float) -> None:
        for name in self.made:
            self.pids[name] = self.fleet.start(name)
        for name in self.made:
            self.come(name)
        self.clients.start()
        self.log("all up")
        end = time.monotonic() + seconds
        looked = 0.0
        while time.monotonic() < end:
            self.fleet.check()
            self.bring_back()
            if len(self.away) < AWAY and self.rng.random() < 0.1:
                self.take()
            if time.monotonic() - looked > 10:
                looked = time.monotonic()
                self.look()
            time.sleep(0.25)
        for name in self.away:
            self.away[name] = (0.0, self.away[name][1])
        self.bring_back()
        self.clients.stopping.set()
        self.clients.join(30)
        self.look()

    def look(self) -> None:
        now = time.monotonic() - self.log.since
        for name in list(self.made)[:SPARED]:
            self.memory[name].append((now, rss(self.pids[name])))
        spared = {name: seen[-1][1] // 2**20 for name, seen in self.memory.items() if seen}
        rounds = {
            n: s["round"] for n, s in self.fleet.statuses().items() if s is not None and n not in self.away
        }
        self.log("seen", asked=self.clients.asked, unanswered=len(self.clients.unanswered), rss_mib=spared,
                 rounds=rounds)  # fmt: skip

    def growth(self) -> dict[str, float]:
        """Of each spared node: mean memory in the last fifth of the time to that in the second fifth."""
        out = {}
        for name in list(self.made)[:SPARED]:
            sizes = [size for _, size in self.memory[name]]
            fifth = max(1, len(sizes) // 5)
            out[name] = float(np.mean(sizes[-fifth:]) / np.mean(sizes[fifth : 2 * fifth] or sizes) - 1)
        return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/soak.jsonl"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        log = Log(file)
        log("start", minutes=given.minutes, seed=given.seed, nodes=NODES, versions=versions())
        made = prepare(Path(folder), NODES)
        with Fleet({name: each.folder for name, each in made.items()}) as fleet:
            soak = Soak(fleet, made, log, given.seed)
            soak.run(60 * given.minutes)
        clients, growth = soak.clients, soak.growth()
        answered = len(clients.seconds)
        summary = {
            "minutes": given.minutes, "done": soak.done, "asked": clients.asked, "answered": answered,
            "excused": clients.excused, "unanswered": len(clients.unanswered),
            "accuracy": {which: round(n / max(1, answered), 3) for which, n in clients.right.items()},
            "p50_ms": round(1000 * float(np.percentile(clients.seconds, 50)), 1),
            "p99_ms": round(1000 * float(np.percentile(clients.seconds, 99)), 1),
            "mean_members": round(float(np.mean(clients.members)), 2),
            "states_lost": len(soak.lost), "memory_growth": {n: round(g, 4) for n, g in growth.items()},
        }  # fmt: skip
        log("summary", **summary)
    print(json.dumps(summary, indent=1))
    wrong = clients.unanswered or soak.lost or any(g > GROWTH for g in growth.values())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
