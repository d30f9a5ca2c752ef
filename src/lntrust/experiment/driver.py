"""The driver: the same world, Stage 1, schedule, evaluation and score for every method."""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lntrust.core.errors import CannotStackError, LNTrustError
from lntrust.core.files import read_json, write_json
from lntrust.core.memory import kept_memory
from lntrust.core.threads import sleeping_threads, threads_for
from lntrust.experiment import evaluation
from lntrust.experiment.checkpoints import Course, opened, read_stage1, write_stage1
from lntrust.experiment.divergence import sound
from lntrust.experiment.metrics import finite, summarise
from lntrust.experiment.store import fingerprint, hardware, identities, records, slug, versions
from lntrust.experiment.store.identity import checkpoint, data_digest, stage1_file
from lntrust.experiment.store.schemas import Identity
from lntrust.experiment.store.worlds import keep_world
from lntrust.learners import Labelled, Population
from lntrust.learners.inference import Backend
from lntrust.learners.views import Views, numbers_in_a_step
from lntrust.methods import Deployment, Method, Site, find_method
from lntrust.methods.base import Schedule, Tensors, below, under
from lntrust.methods.own import check_verbs
from lntrust.network import Network
from lntrust.study.settings import Study, once_each
from lntrust.world import Dataset, World, build_world, side_by_side

Progress = Callable[[int, int, float | None], None]  # rounds done, rounds in all, mean training loss
MakeWorld = Callable[[Study, Dataset, int, bool], World]


class Runs:
    """One method on one study with several seeds, all nodes of all seeds in one stack of tensors.

    The worlds stand side by side and share nothing but the machine: each seed's result is that of a run by
    itself, up to rounding, and has a folder of its own. What a stack of several needs to go on after a stop
    lies in one folder beside theirs until it has ended.
    """

    def __init__(
        self,
        study: Study,
        method: str,
        seeds: Sequence[int],
        views: Views,
        *,
        backend: Backend = "batched",
        folder: Path | None = None,
        certify: bool = False,
        notice: Callable[[str], None] = lambda _: None,
        guard: Callable[[], None] = lambda: None,
        share_stage1: Path | None = None,
        make_world: MakeWorld = lambda study, dataset, seed, _: build_world(study, dataset, seed),
    ) -> None:
        self.study, self.method_name, self.seeds = study, method, tuple(once_each(seeds, "seeds"))
        self.views, self.device, self.backend = views, views.device, backend
        self.method: Method[Any] = find_method(method, study)
        check_verbs(self.method, method, stacked=len(self.seeds) > 1)
        if certify and self.method.certificate is None:
            raise LNTrustError(f"--certify: method {method} has no certificate; lntrust has one")
        if certify and self.method.final_rounds:
            raise LNTrustError("--certify: final_rounds change validated models; set final_rounds = 0")
        if certify and len(self.seeds) > 1:
            raise CannotStackError("--certify: stacked seeds have no certificate; run them one by one")
        self.method.certify = certify
        self._guard = guard  # asked before anything is written, and may object
        uses_validation = self.method.uses_validation
        worlds = [make_world(study, views.dataset, seed, uses_validation) for seed in self.seeds]
        self.world = side_by_side(worlds)
        lr = getattr(self.method.settings, "lr", None)
        training = study.training if lr is None else study.training.model_copy(update={"lr": lr})
        labels = torch.from_numpy(self.world.labels).to(self.device)
        self.population = Population(
            study.population.learners, self.world.kinds, views, labels, len(self.world.classes), training,
            self.world.seeds, backend, self.method.common_start,
        )  # fmt: skip
        self.network = Network(self.world, self.population, self.method.wire_format)
        self._inputs = [evaluation.test_inputs(world) for world in self.world.worlds]
        tested = torch.from_numpy(evaluation.padded(self._inputs)).to(self.device)
        self.tested = tested if len(self.seeds) > 1 else tested[0]
        self.rounds = study.training.rounds
        self._evaluated = records.evaluated_rounds(study)
        self._steps = 0  # labelled ones that were counted
        self._stage1: Path | None = None  # where its end lies for all that share it
        self.folders: list[Path] = []
        if folder is not None:  # what a run is made of is looked at now, and not when it ends
            self._base, self.folders = folder, [folder / slug(of) for of in self.identities]
            self._checkpoint = folder / checkpoint(self.identities)
            self._together = "-".join(map(fingerprint, self.identities))
            if share_stage1 is not None and study.training.stage2_rounds:
                decides = {"uses_validation": uses_validation, "common_start": self.method.common_start}
                self._stage1 = share_stage1 / stage1_file(self.identities, {**decides, "lr": training.lr})
        self.course = Course(len(self.seeds), self.folders)
        self._enter_stage(1)
        for stack in self.population.torch_stacks:
            if stack.looped_because:
                notice(f"learner {stack.learner.name} runs one node at a time: {stack.looped_because}")
        self.method.check(self.site)
        for remark in self.method.remarks(self.site):
            notice(f"{method}: {remark}")

    @property
    def done(self) -> int:
        """Rounds."""
        return self.course.done

    @property
    def state(self) -> Any:
        """The method's."""
        return self.course.state

    @cached_property
    def identities(self) -> list[Identity]:
        """Everything that decides the result of each seed."""
        study, data = self.study, data_digest(self.study, self.views.dataset)
        made = (self.device.type, data, self.backend, self.method.certify)
        return identities(study, self.method_name, self.seeds, *made)

    # -- the course of a run ----------------------------------------------------------------------

    def __call__(self, *, resume: bool = False, progress: Progress = lambda *_: None) -> list[dict[str, Any]]:
        """Train, evaluate, score. With `resume`, go on from the last checkpoint."""
        numbers = numbers_in_a_step(self.study, self.views, self.world.n)
        with threads_for(numbers), sleeping_threads(), kept_memory():  # whoever calls, and has set what
            if self.folders:  # also of runs that an earlier version finished
                for of, world in zip(self.identities, self.world.worlds, strict=True):
                    keep_world(self._base, of, world, self.views.dataset)
            finished = [folder / "summary.json" for folder in self.folders]
            if resume and finished and all(path.is_file() for path in finished):
                progress(self.rounds, self.rounds, None)
                return [read_json(path) for path in finished]
            if self.folders:
                self._take_folders(resume)
            self._train(progress)
            # The only place where test labels are read.
            summaries = [self._summary(s) for s in range(len(self.seeds))]
            self._leave_stack()
            return summaries

    def _train(self, progress: Progress) -> None:
        self._clock = time.perf_counter()
        if self._stage1 is not None and self.done == 0 and self._stage1.is_file():
            self._guard()
            read_stage1(self._stage1, self.course, self.population)
            self.network.round = self.done
            losses, _ = self.course.noted[self.done]
            self._begin_collaboration()
            self._note(losses)
        progress(self.done, self.rounds, None)
        if self.done == self.study.training.stage1_rounds == 0:
            self._begin_collaboration()
            if self.rounds == 0:
                self._evaluate()
        while self.done < self.rounds:
            self._guard()
            if not self._next_round():
                break
            last = self.done == self.rounds
            due = self.done % self.study.evaluation.checkpoint_every == 0
            if self.folders and (due or last):
                self._save()
            # A GPU would have to be waited for; so its losses are shown where it is waited for anyway.
            shown = last or (self.done % 5 == 0 if self.device.type == "cpu" else due)
            progress(self.done, self.rounds, self.course.latest_loss() if shown else None)
        self._stop_clock()

    def _stop_clock(self) -> None:
        """Add up the seconds until all that was asked for is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.course.seconds, self._clock = self.course.seconds + now - self._clock, now

    def _stage(self, number: int) -> int:
        """Which stage a round belongs to: 3 are the final ones, in which validation labels are trained on."""
        if number <= self.study.training.stage1_rounds:
            return 1
        return 3 if number > self.rounds - self.method.final_rounds else 2

    def _enter_stage(self, stage: int) -> None:
        world, population, training = self.world, self.population, self.study.training
        lists = world.labelled(stage, self.method.uses_validation)
        self.labelled = Labelled(lists, population.labels, training, world.seeds, stage, self.device)
        schedule = Schedule(training.stage2_rounds, self.method.final_rounds)
        self.site = Site(world, population, self.network, self.labelled, schedule, self.course.observer)
        taught = stage == 3 and self.state is not None  # else a checkpoint brings the models, too
        population.refit(lists, self.method.pseudo_labels(self.site, self.state) if taught else None)

    def _begin_collaboration(self) -> None:
        self._enter_stage(2)
        self._certify()
        self.course.state = self.method.start(self.site)
        if self.study.training.stage2_rounds == 0:
            self.course.state = self.method.finish(self.site, self.state)
        self._count_steps(granted=0)

    def _certify(self, kept: Tensors | None = None) -> None:
        """With `--certify`: the method's certificate watches, from now on or from a checkpoint on."""
        if self.method.certify and self.method.certificate is not None:
            self.course.observer = self.site.observer = self.method.certificate(self.site, kept)

    def _next_round(self) -> bool:
        """One round; whether there is anything left to train after it.

        What a method says to numbers that are not finite is no error of its own.
        """
        try:
            return self._one_round()
        except Exception as error:
            self.course.look(sound(self.population))
            if not (diverged := self.course.diverged):
                raise
            if len(diverged) < len(self.seeds):
                self._leave_stack()
                raise CannotStackError(
                    f"stacked seeds: seed {self.seeds[min(diverged)]} has diverged, and {self.method_name} "
                    f"cannot go on beside it ({type(error).__name__}: {error}); run them one by one"
                ) from error
            self._note(None)
            return False

    def _all_diverged(self) -> bool:
        """Whether no world is left to train. A GPU is asked where it is waited for anyway."""
        due = self.done % self.study.evaluation.checkpoint_every == 0 or self.done in self._evaluated
        return (due or self.device.type == "cpu") and len(self.course.diverged) == len(self.seeds)

    def _one_round(self) -> bool:
        training = self.study.training
        self.course.done += 1
        self.network.round = self.done
        t = self.done - training.stage1_rounds
        self.population.last_loss.clear()  # of this round or none: an earlier one is not in a checkpoint
        if t <= 0:
            for batch in self.labelled.round(self.done - 1):
                self.population.step(batch)
        else:
            if self._stage(self.done) == 3 > self._stage(self.done - 1):
                self._enter_stage(3)
            self.course.state = self.method.round(self.site, self.state, t)
            if t % training.refresh == 0:
                self.population.refit(self.labelled.lists, self.method.pseudo_labels(self.site, self.state))
            if self.done == self.rounds:
                self.course.state = self.method.finish(self.site, self.state)
        self._count_steps(granted=self.labelled.drawn)
        # The supervised loss, a mean for each world; not taken every time, since it costs.
        loss = self.population.last_loss.get("supervised") if self.done % 5 == 0 else None
        losses = None if loss is None else loss.view(len(self.seeds), -1).nanmean(1)
        self._note(losses)
        self.course.look(sound(self.population))
        if self._all_diverged():
            return False
        if t == 0:
            if self.done < self.rounds:
                self._evaluate(Deployment.alone(self.population))
            if self._stage1 is not None and not self.course.diverged:
                self._guard()
                self._stop_clock()
                write_stage1(self._stage1, self.course, self.population)
            self._begin_collaboration()
        if self.done in self._evaluated and self.done not in self.course.evaluations[0]:
            self._evaluate(Deployment.alone(self.population) if t < 0 else None)
        self._note(losses)
        return not self._all_diverged()

    def _note(self, losses: Tensor | None) -> None:
        """What the round has left; what is said of it later counts."""
        totals = [self.network.ledger.total(self.world.edges_of(s)) for s in range(len(self.seeds))]
        nothing = torch.full((len(self.seeds),), torch.nan)
        self.course.noted[self.done] = (nothing if losses is None else losses), totals

    def _count_steps(self, granted: int) -> None:
        """Since it was last asked."""
        taken = self.population.calls.get("supervised", 0) - self._steps
        self._steps += taken
        if taken > granted:
            raise LNTrustError(
                f"method {self.method_name}: took {taken} labelled steps in round {self.done}; "
                f"the schedule grants {granted}"
            )

    # -- evaluation -------------------------------------------------------------------------------

    def _evaluate(self, deployment: Deployment | None = None) -> None:
        """Store what every node would answer on test inputs. Nothing is charged for it."""
        last = deployment is None and self.done == self.rounds
        with nullcontext() if last else self.network.uncharged():  # the real one is charged
            deployment = deployment or self.method.deploy(self.site, self.state)
        with self.network.uncharged():
            evaluation.check_members(deployment, self.network.edges, self.world.n, self.method_name)
            predicted = evaluation.answers(self.population, self.network, deployment, self.tested)
        self.course.look(predicted.pop("finite"))
        asked = predicted.pop("asked", None)
        if last:
            self.course.asked = evaluation.asked_by_world(deployment, self.world, asked, self._inputs)
        for s, ids in enumerate(self._inputs):
            nodes = self.world.nodes_of(s)
            own = {name: p[nodes, : len(ids)].cpu().numpy() for name, p in predicted.items()}
            self._guard()
            self.course.keep_evaluation(s, self.done, own)

    def _summary(self, s: int) -> dict[str, Any]:
        """One world's: its score, its bytes, and what the method has to say."""
        world, many, course = self.world.worlds[s], len(self.seeds), self.course
        number, stage1 = course.diverged.get(s), self.study.training.stage1_rounds
        scores, rows = summarise(world, course.evaluations[s], stage1, number)
        per_node = scores.pop("per_node")
        report, tables, per_query, per_input = {}, {}, None, None
        if number is None:
            nodes = (self.world.nodes_of(s),) if many > 1 else ()  # who is never stacked may ignore it
            report = finite(self.method.report(self.site, self.state, *nodes))
            tables = self.method.tables(self.site, self.state, *nodes)
            per_query = self.network.deployment_bytes(1) * course.asked[s] / world.n
            per_input = course.asked[s] / world.n
        summary = {
            "study": self.study.name, "method": self.method_name, "deploy": self.study.deploy,
            "seed": world.seed, "nodes": world.n,
            "device": self.device.type, "backend": self.backend, "diverged": number, **scores,
            "bytes": {
                **self.network.ledger.summary(self.world.edges_of(s)),
                "per_deployed_query": per_query, "asked_per_input": per_input,
            },
            "method_report": report, "per_node": per_node,
            "seconds": round(course.seconds / many, 3),  # of several seeds at once each is charged its share
            "stacked": many,
        }  # fmt: skip
        if self.folders:
            self._guard()
            rounds = records.rounds_table(course.history(s)[:number], rows)
            records.write_results(self.folders[s], summary, {"rounds": rounds, **tables})
        return summary

    # -- what lies in folders ---------------------------------------------------------------------

    def _take_folders(self, resume: bool) -> None:
        """Go on from a checkpoint, or take away what an earlier run of the same identity has left."""
        self._guard()
        if resume and self._checkpoint.is_file():
            self._load(self._checkpoint)
        if not resume:
            for folder in {*self.folders, self._checkpoint.parent}:
                records.clear_run(folder)
        for of, folder in zip(self.identities, self.folders, strict=True):
            write_json(folder / "run.json", {**of, "versions": versions(), "hardware": hardware(self.device)})

    def _leave_stack(self) -> None:
        """Nobody goes on together: a checkpoint that stays would take the seeds' own runs over."""
        if self.folders and len(self.seeds) > 1:
            shutil.rmtree(self._checkpoint.parent, ignore_errors=True)

    def _save(self) -> None:
        self._stop_clock()
        self._guard()
        parts = under("population/", self.population.state()) | under("network/", self.network.state())
        parts |= under("method/", {} if self.state is None else self.method.pack(self.state))
        self.course.save(self._checkpoint, self._together, parts | {"taken": self.labelled.steps_taken})

    def _load(self, path: Path) -> None:
        course, stage1 = self.course, self.study.training.stage1_rounds
        with opened(path, self._together) as (tensors, metadata):
            course.load(path, tensors, metadata, self._evaluated)
            if course.done >= stage1:
                self._enter_stage(max(2, self._stage(course.done)))
            self.population.load(below("population/", tensors))
            self.network.load(below("network/", tensors))
            if course.done >= stage1:
                # Copies: a file's tensors lie at any address, and products round otherwise where it is odd.
                kept = {name: t.to(self.device, copy=True) for name, t in tensors.items()}
                course.state = self.method.unpack(below("method/", kept))
                # Of the certificate; the first version put it into the method's state.
                self._certify(below("certificate/", kept) or below("method/certificate/", kept))
            self.labelled.steps_taken = tensors["taken"].to(self.device)


class Run(Runs):
    """One method on one study with one seed."""

    def __init__(self, study: Study, method: str, seed: int, views: Views, **options: Any) -> None:
        super().__init__(study, method, [seed], views, **options)
        self.seed = seed
        self.folder = self.folders[0] if self.folders else None

    @property
    def identity(self) -> Identity:
        return self.identities[0]

    def __call__(self, *, resume: bool = False, progress: Progress = lambda *_: None) -> dict[str, Any]:  # type: ignore[override]
        return super().__call__(resume=resume, progress=progress)[0]


def run(study: Study, method: str, seed: int, views: Views, **options: Any) -> dict[str, Any]:
    """Make a run and carry it out without a folder: for notebooks and tests."""
    return Run(study, method, seed, views, **options)()
