"""The driver: the same world, Stage 1, schedule, evaluation and score for every method.

A run folder holds `run.json` (what was asked for, and with which versions), `checkpoint.safetensors`,
`evaluations/` (predicted classes on test inputs), and at the end `rounds.parquet` and `summary.json`.
All draws are functions of counters, so a checkpoint needs no generator state: parameters, momentum,
step counts, the method's state and the ledger are all there is.
"""

import hashlib
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from lntrust.errors import LNTrustError
from lntrust.experiment.evaluation import answers, test_inputs
from lntrust.experiment.files import (
    read_json,
    read_tensors,
    write_json,
    write_tensors,
    write_whole,
)
from lntrust.experiment.metrics import Predictions, summarise
from lntrust.learners import Labelled, Population
from lntrust.learners.stack import Backend, Stack
from lntrust.learners.views import Views
from lntrust.methods import Deployment, Method, Site, State, find_method
from lntrust.methods.base import below
from lntrust.network import Network
from lntrust.settings import Study
from lntrust.world import Dataset, World, build_world

Progress = Callable[[int, int, float | None], None]  # rounds done, rounds in all, mean training loss
Notice = Callable[[str], None]


class Run:
    """One method on one study with one seed."""

    def __init__(
        self,
        study: Study,
        method: str,
        seed: int,
        views: Views,
        *,
        backend: Backend = "batched",
        folder: Path | None = None,
        certify: bool = False,
        notice: Notice = lambda _: None,
        make_world: Callable[[Study, Dataset, int, bool], World] | None = None,
    ) -> None:
        self.study, self.method_name, self.seed = study, method, seed
        self.backend: Backend = backend
        self.method: Method = find_method(method, study)
        if certify and not self.method.can_certify:
            raise LNTrustError(f"--certify: method {method} has no certificate; lntrust has one")
        self.method.certify = certify
        build = make_world or (lambda study, dataset, seed, _: build_world(study, dataset, seed))
        self.world: World = build(study, views.dataset, seed, self.method.uses_validation)
        lr = getattr(self.method.settings, "lr", None)
        self.training = study.training if lr is None else study.training.model_copy(update={"lr": lr})
        self.device = views.device
        labels = torch.from_numpy(self.world.labels).to(self.device)
        self.population = Population(
            study.population.learners, self.world.kinds, views, labels, len(self.world.classes),
            self.training, seed, backend, self.method.common_start,
        )  # fmt: skip
        self.network = Network(self.world, self.population)
        self._labels = labels
        self._tested = torch.from_numpy(test_inputs(self.world)).to(self.device)
        self.folder = None if folder is None else folder / self.slug
        self.rounds = study.training.stage1_rounds + study.training.stage2_rounds
        self.done = 0
        self.seconds = 0.0
        self.state: State = {}
        self._asked = 0  # neighbours that all nodes together ask when they are deployed
        self._history: list[tuple[float, int]] = []  # mean loss and bytes after each round
        self._evaluations: dict[int, Predictions] = {}
        self._enter_stage(1)
        for stack in self.population.stacks:
            if isinstance(stack, Stack) and stack.looped_because:
                notice(f"learner {stack.learner.name} runs one node at a time: {stack.looped_because}")
        self.method.check(self.site)
        for remark in self.method.remarks(self.site):
            notice(f"{method}: {remark}")

    # -- identity ---------------------------------------------------------------------------------

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the result."""
        study = self.study.model_dump(mode="json", exclude={"about", "compare", "seeds", "methods"})
        settings = self.method.settings.model_dump(mode="json")
        return {
            "study": study, "method": self.method_name, "settings": settings, "seed": self.seed,
            "device": self.device.type, "backend": self.backend, **self.method.more_identity(),
            **({"certify": True} if self.method.certify else {}),
        }  # fmt: skip

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:10]

    @property
    def slug(self) -> Path:
        name = self.method_name.replace(":", "-")
        return Path(self.study.name) / name / f"seed-{self.seed}-{self.fingerprint}"

    # -- the course of a run ----------------------------------------------------------------------

    def __call__(self, *, resume: bool = False, progress: Progress = lambda *_: None) -> dict[str, Any]:
        """Train, evaluate, score. With `resume`, go on from the folder's last checkpoint."""
        if self.folder is not None:
            finished = self.folder / "summary.json"
            if resume and finished.is_file():
                progress(self.rounds, self.rounds, None)
                summary: dict[str, Any] = read_json(finished)
                return summary
            if resume:
                self._load(self.folder)
            else:
                self._clear(self.folder)
            write_json(self.folder / "run.json", {**self.identity, "versions": versions()})
        progress(self.done, self.rounds, None)
        clock = time.perf_counter()
        if self.done == self.study.training.stage1_rounds == 0:
            self._begin_collaboration()
            if self.rounds == 0:
                self._evaluate()
        while self.done < self.rounds:
            self._one_round()
            last = self.done == self.rounds
            due = self.done % self.study.evaluation.checkpoint_every == 0
            if self.folder is not None and (due or last):
                now = time.perf_counter()
                self.seconds, clock = self.seconds + now - clock, now
                self._save(self.folder)
            often = self.done % 5 == 0 or last
            progress(self.done, self.rounds, self._history[-1][0] if often else None)
        self.seconds += time.perf_counter() - clock
        return self._finish()

    def _enter_stage(self, stage: int) -> None:
        lists = self.world.labelled(stage, self.method.uses_validation)
        self.labelled = Labelled(lists, self._labels, self.study.training, self.seed, stage, self.device)
        self.site = Site(self.world, self.population, self.network, self.labelled)
        self.population.refit(lists)

    def _begin_collaboration(self) -> None:
        self._enter_stage(2)
        before = self._supervised_steps
        self.state = self.method.start(self.site)
        if self.study.training.stage2_rounds == 0:
            self.state = self.method.finish(self.site, self.state)
        self._count_steps(before, granted=0)

    def _one_round(self) -> None:
        training = self.study.training
        self.done += 1
        self.network.round = self.done
        t = self.done - training.stage1_rounds
        before = self._supervised_steps
        self.population.last_loss.clear()  # of this round or none: an earlier one is not in a checkpoint
        if t <= 0:
            for batch in self.labelled.round(self.done - 1):
                self.population.step(batch)
        else:
            self.state = self.method.round(self.site, self.state, t)
            if t % training.refresh == 0:
                self.population.refit(self.labelled.lists, self.method.pseudo_labels(self.site, self.state))
        if self.done == self.rounds and t > 0:
            self.state = self.method.finish(self.site, self.state)
        self._count_steps(before, granted=self.labelled.drawn)
        if t == 0:
            if self.done < self.rounds:
                self._evaluate(Deployment.alone(self.population))
            self._begin_collaboration()
        if self._evaluation_due(self.done) and self.done not in self._evaluations:
            self._evaluate(Deployment.alone(self.population) if t < 0 else None)
        loss = self.population.last_loss.get("supervised")
        mean_loss = float(loss.nanmean()) if loss is not None and self.done % 5 == 0 else float("nan")
        self._history.append((mean_loss, self.network.ledger.summary()["total"]))

    @property
    def _supervised_steps(self) -> int:
        return self.population.calls.get("supervised", 0)

    def _count_steps(self, before: int, granted: int) -> None:
        taken = self._supervised_steps - before
        if taken > granted:
            raise LNTrustError(
                f"method {self.method_name}: took {taken} labelled steps in round {self.done}; "
                f"the schedule grants {granted}"
            )

    # -- evaluation -------------------------------------------------------------------------------

    def _evaluation_due(self, number: int) -> bool:
        stage1 = self.study.training.stage1_rounds
        return number % self.study.evaluation.every == 0 or number in (stage1, self.rounds)

    def _evaluate(self, deployment: Deployment | None = None) -> None:
        """Store what every node would answer on test inputs. Nothing is charged for it."""
        if deployment is None and self.done == self.rounds:
            deployment = self.method.deploy(self.site, self.state)  # the real one: charged
            self._asked = _asked(deployment)
        with self.network.uncharged():
            if deployment is None:
                deployment = self.method.deploy(self.site, self.state)
            self._check_members(deployment)
            predicted = answers(self.population, self.network, deployment, self._tested)
        if self.folder is not None:
            write_tensors(self._evaluation_file(self.done), predicted)
        self._evaluations[self.done] = {name: p.cpu().numpy() for name, p in predicted.items()}

    def _check_members(self, deployment: Deployment) -> None:
        """Who answers for a node must be itself or a neighbour: there is no other door."""
        known = torch.eye(self.world.n, dtype=torch.bool, device=self.device)
        known[self.network.edges[:, 0], self.network.edges[:, 1]] = True
        for way in (deployment, *deployment.variants.values()):
            strangers = way.members[~known[way.members[:, 0], way.members[:, 1]]]
            for node, member in strangers.tolist():
                raise LNTrustError(
                    f"method {self.method_name}: deploys node {member} at node {node}, which does not "
                    "know it; a member must be the node itself or a neighbour"
                )

    def _evaluation_file(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / "evaluations" / f"round-{number:05d}.safetensors"

    def _finish(self) -> dict[str, Any]:
        """Score all stored predictions; the only place where test labels are read."""
        stage1 = self.study.training.stage1_rounds
        scores, rows = summarise(self.world, self._evaluations, stage1)
        per_node = scores.pop("per_node")
        summary = {
            "study": self.study.name, "method": self.method_name, "deploy": self.study.deploy,
            "seed": self.seed, "nodes": self.world.n,
            "device": self.device.type, "backend": self.backend, **scores,
            "bytes": {
                **self.network.ledger.summary(),
                "per_deployed_query": self.network.deployment_bytes(1) * self._asked / self.world.n,
            },
            "method_report": self.method.report(self.site, self.state),
            "per_node": per_node,
            "seconds": round(self.seconds, 3),
        }  # fmt: skip
        if self.folder is not None:
            self._write_rounds(rows)
            for name, columns in self.method.tables(self.site, self.state).items():
                table = pa.table(columns)
                write_whole(self.folder / f"{name}.parquet", partial(pq.write_table, table))
            write_json(self.folder / "summary.json", summary)
        return summary

    def _write_rounds(self, rows: list[dict[str, Any]]) -> None:
        scored = {row["round"]: row for row in rows}
        table = []
        for number, (loss, total) in enumerate(self._history, 1):
            row = {"round": number, "loss": None if np.isnan(loss) else loss, "bytes": total}
            table.append(
                row
                | {k: scored.get(number, {}).get(k) for k in ("test", "self", "test_pooled", "self_pooled")}
            )
        columns = ("loss", "bytes", "test", "self", "test_pooled", "self_pooled")
        types = [
            ("round", pa.int64()),
            *((c, pa.int64() if c == "bytes" else pa.float64()) for c in columns),
        ]
        assert self.folder is not None
        arrow = pa.Table.from_pylist(table, schema=pa.schema(types))
        write_whole(self.folder / "rounds.parquet", lambda temporary: pq.write_table(arrow, temporary))

    # -- checkpoints ------------------------------------------------------------------------------

    def _save(self, folder: Path) -> None:
        parts = {
            "population": self.population.state(),
            "network": self.network.state(),
            "method": self.state,
        }
        tensors = {f"{part}/{name}": t for part, table in parts.items() for name, t in table.items()}
        tensors["taken"] = self.labelled.taken
        tensors["history"] = torch.tensor(self._history, dtype=torch.float64)
        if self.done == self.rounds:
            tensors["asked"] = torch.tensor(self._asked)
        metadata = {
            "fingerprint": self.fingerprint,
            "round": str(self.done),
            "seconds": f"{self.seconds:.3f}",
        }
        write_tensors(folder / "checkpoint.safetensors", tensors, metadata)

    def _load(self, folder: Path) -> None:
        path = folder / "checkpoint.safetensors"
        if not path.is_file():
            return
        tensors, metadata = read_tensors(path)
        if metadata.get("fingerprint") != self.fingerprint:
            raise LNTrustError(
                f"{path}: belongs to another run ({metadata.get('fingerprint')}, not {self.fingerprint})"
            )
        try:
            self._restore(tensors, metadata)
        except (KeyError, ValueError, RuntimeError) as error:  # another version's, or tampered with
            raise LNTrustError(
                f"{path}: does not fit this run: {type(error).__name__}: {error}; remove it to start over"
            ) from error
        for number in filter(self._evaluation_due, range(1, self.done + 1)):
            stored, _ = read_tensors(self._evaluation_file(number))
            self._evaluations[number] = {name: t.numpy() for name, t in stored.items()}

    def _restore(self, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        self.done, self.seconds = int(metadata["round"]), float(metadata["seconds"])
        if self.done >= self.study.training.stage1_rounds:
            self._enter_stage(2)
        self.population.load(below("population/", tensors))
        self.network.load(below("network/", tensors))
        self.state = {name: t.to(self.device) for name, t in below("method/", tensors).items()}
        self.labelled.taken = tensors["taken"].to(self.device)
        self._history = [(loss, int(total)) for loss, total in tensors["history"].tolist()]
        if "asked" in tensors:
            self._asked = int(tensors["asked"])

    def _clear(self, folder: Path) -> None:
        """A fresh start takes an earlier run of the same identity away."""
        if not folder.is_dir():
            return
        try:
            for pattern in ("summary.json", "*.parquet", "checkpoint.safetensors", "evaluations/round-*"):
                for file in folder.glob(pattern):
                    file.unlink()
        except OSError as error:
            raise LNTrustError(f"cannot clear {folder} for a fresh run: {error}") from None


def _asked(deployment: Deployment) -> int:
    """Rows for which a neighbour has to be asked: not oneself, and not a model one holds."""
    asks = deployment.members[:, 0] != deployment.members[:, 1]
    return int((asks if deployment.held is None else asks & ~deployment.held).sum())


def versions() -> dict[str, str]:
    """What the result may depend on besides the study."""
    from lntrust import __version__

    return {
        "lntrust": __version__, "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "machine": platform.machine(),
    }  # fmt: skip


def run(study: Study, method: str, seed: int, views: Views, **options: Any) -> dict[str, Any]:
    """Make a run and carry it out without a folder: for notebooks and tests."""
    return Run(study, method, seed, views, **options)()
