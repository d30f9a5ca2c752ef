"""Tuning: search a method's settings on training and validation data alone.

A trial is an ordinary run in a world where validation examples play the part of the test set and the true
test set does not exist: its labels are not in it. All train on train only, but for final rounds, which train
on what trust was fitted to. A method that fits something to validation labels (trust, an ensemble) gets the
first half of each node's, and the other half scores it. The first trial is the study as it stands; Optuna
(TPE) draws the others from the ranges that the method's settings declare. Every trial is a line of the log,
and the winning study is a function of the log.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_whole
from lntrust.core.randomness import small_seed
from lntrust.experiment.driver import Progress, Run
from lntrust.experiment.store.identity import content_of, data_digest
from lntrust.experiment.store.records import versions
from lntrust.experiment.store.schemas import corrected_in, under_old_names
from lntrust.learners.views import Views
from lntrust.methods import find_method
from lntrust.methods.lntrust.presets import method_of
from lntrust.study.settings import Range, Settings, Study, identity_fields, recorded
from lntrust.world import Dataset, World, build_world
from lntrust.world.partition.partition import groups
from lntrust.world.partition.splits import in_parts
from lntrust.world.world import SealedLabels, class_distribution

Line = dict[str, Any]  # one trial, as the log has it


def tuning_world(study: Study, dataset: Dataset, seed: int, uses_validation: bool) -> World:
    """The study's world with validation in the place of test; half of it is fitted to, if any is."""
    world = build_world(study, dataset, seed)
    p, share, group = world.partition, 0.5 if uses_validation else 0.0, groups(study.partition, dataset)
    scores = np.concatenate([~first_part(ids, group, share) for ids in p.validation])
    fitted, scored = in_parts(p.validation.values, p.validation.owner, scores, world.n, 2)
    labels, only_scored = np.full_like(world.labels, -1), np.full_like(world.labels, -1)
    for lists in (p.train, fitted, p.given_up):  # somebody's, and known to nobody else
        labels[lists.values] = world.labels[lists.values]
    only_scored[scored.values] = world.labels[scored.values]
    return replace(
        world,
        partition=replace(p, validation=fitted, test=scored),
        labels=labels,
        class_distribution=class_distribution(labels, (p.train, fitted), len(world.classes)),
        sealed=SealedLabels(only_scored),
    )


def first_part(ids: Int[ndarray, "m"], group: Int[ndarray, "N"], share: float) -> Bool[ndarray, "m"]:
    """Which of these examples are the first share of them; what belongs together stays together."""
    _, first, inverse, size = np.unique(
        group[ids], return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)  # groups as they appear
    taken = np.zeros(len(size), dtype=bool)
    taken[order] = np.cumsum(size[order]) <= int(len(ids) * share)
    return np.asarray(taken[inverse.reshape(-1)])


def search_space(settings: type[Settings]) -> dict[str, Range]:
    """The settings that declare a range, in the order they are declared."""
    marks = [(name, mark) for name, info in settings.model_fields.items() for mark in info.metadata]
    return {name: mark for name, mark in marks if isinstance(mark, Range)}


class Search:
    """The trials of one method on one study with one seed; those in the log count as done."""

    def __init__(self, study: Study, method: str, seed: int, views: Views, log: Path) -> None:
        self.study, self.method, self.seed, self.views, self.log = study, method, seed, views, log
        for library in ("optuna", "tomli_w"):
            if find_spec(library) is None:
                raise LNTrustError(f"lntrust tune needs {library}; pip install 'lntrust[tune]'")
        settings = find_method(method, study).settings
        self.space = search_space(type(settings))
        if not self.space:
            raise LNTrustError(f"method {method}: none of its settings declares a range to search")
        self.start = {name: getattr(settings, name) for name in self.space}
        if "lr" in self.start and self.start["lr"] is None:
            self.start["lr"] = study.training.lr
        self.of = search_key(study, method, seed)
        self.data = data_digest(study, views.dataset)
        self.lines = trials_in(log, self.of, self.data)

    def __call__(self, trials: int, progress: Callable[[str], Progress]) -> list[Line]:
        """Go on until there are so many trials; `progress` gives, for a trial's name, what watches it."""
        while (done := len(self.lines)) < trials:
            seed = small_seed(self.seed, "tuning", done)
            settings = _suggest(self.space, self.lines, seed) if done else self.start
            self.lines.append(self._trial(settings, progress(f"{self.method}, trial {done + 1} of {trials}")))
            append_line(self.log, self.lines[-1])  # at once: a trial is worth minutes
        return self.lines

    def _trial(self, settings: dict[str, Any], progress: Progress) -> Line:
        table = {**self.study.methods.get(self.method, {}), **settings}
        methods = {**self.study.methods, self.method: table}
        evaluation = self.study.evaluation.model_copy(update={"every": 10**9})  # only the last round counts
        study = self.study.model_copy(update={"methods": methods, "evaluation": evaluation})
        run = Run(study, self.method, self.seed, self.views, make_world=tuning_world)
        summary = run(progress=progress)
        own, pooled = summary["test"], summary["test_pooled"]
        score = own if pooled is None else pooled  # the pooled score is the less noisy one
        if score is None and summary["diverged"] is None:
            raise LNTrustError(f"study {self.study.name}: no validation examples to score a trial by")
        return {
            "study": self.study.name, "method": self.method, "seed": self.seed, "trial": len(self.lines),
            "settings": settings, "score": score, "own": own, "pooled": pooled,
            "diverged": summary["diverged"],
            "seconds": summary["seconds"], "device": summary["device"], "of": self.of,
            "data": self.data, "versions": versions(),
        }  # fmt: skip


def search_key(study: Study, method: str, seed: int) -> str:
    """What trials are about, whatever the machine: for a changed study the search begins anew."""
    found = find_method(method, study)
    space = search_space(type(found.settings))
    own = under_old_names({"settings": identity_fields(found.settings), **found.more_identity()})
    settings = own.pop("settings")
    parts = [
        {key: part for key, part in recorded(study).items() if key not in ("name", "evaluation")},
        study.evaluation.pooled,
        method, under_old_names({"settings": study.methods.get(method, {})})["settings"], own,
        seed, {name: repr(r) for name, r in space.items()},
    ]  # fmt: skip
    if method_of(method)[1] is not None:  # a preset may change, and the method's own settings lie below it
        parts.append(settings)
    of = {"study": recorded(study), "method": method, "settings": settings, **own}
    if (corrected := corrected_in(of)) is not None:
        parts.append(corrected)  # scores of earlier schemas are superseded
    made_of = content_of(study, method)
    parts += [made_of[part] for part in ("files", "sources", "code") if part in made_of]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


def read_log(log: Path) -> list[Line]:
    """Every trial in the log."""
    if not log.exists():
        return []
    try:
        whole, _, _ = log.read_text("utf-8").rpartition("\n")  # what follows was cut off in writing
        lines = [json.loads(line) for line in whole.splitlines() if line.strip()]
        return [line for line in lines if line["of"] and line["settings"] is not None]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LNTrustError(f"{log}: not a log of trials: {error}") from None


def trials_in(log: Path, of: str, data: str) -> list[Line]:
    """Those of one search on these data, as far as they say; the first ones did not."""
    return [line for line in read_log(log) if line["of"] == of and line.get("data", data) == data]


def append_line(log: Path, line: Line) -> None:
    """Add a trial; a line that an earlier kill cut off goes."""
    text = json.dumps(line, allow_nan=False) + "\n"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(text.encode())
    except OSError as error:
        raise LNTrustError(f"{log}: cannot be written: {error}; the trial's result is lost: {text}") from None


def best(lines: list[Line]) -> Line:
    """The highest score; the earlier of equals, so that what is published wins a tie.

    A trial that diverged has no score, and is worse than any other.
    """
    return max(lines, key=lambda line: (line["score"] is not None, line["score"] or 0.0, -line["trial"]))


def write_study(to: Path, study: Study, seed: int, inherits: str | None, log: Path, data: str) -> None:
    """The study with the winning settings of every method in the log: what differs from another, or all."""
    import tomli_w

    methods = sorted({line["method"] for line in read_log(log)})
    lines = {method: trials_in(log, search_key(study, method, seed), data) for method in methods}
    winners = {method: best(some)["settings"] for method, some in lines.items() if some}
    counts = sorted(len(some) for some in lines.values() if some)
    trials = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    about = f"{study.about}; tuned by {trials} trials of each method on validation data, seed {seed}"
    own = study.model_dump(mode="json", exclude_none=True)
    whole: dict[str, Any] = own if inherits is None else {"inherits": inherits}
    tables: dict[str, dict[str, Any]] = whole.get("methods", {})
    tables |= {method: tables.get(method, {}) | settings for method, settings in winners.items()}
    # TOML has no none; what is left out is none by default.
    said = {m: {k: v for k, v in table.items() if v is not None} for m, table in tables.items()}
    written = {**whole, "name": to.stem, "about": about, "compare": list(winners), "methods": said}
    write_whole(to, lambda temporary: temporary.write_text(tomli_w.dumps(written), "utf-8"))


# -- Optuna ---------------------------------------------------------------------------------------


def _suggest(space: dict[str, Range], lines: list[Line], seed: int) -> dict[str, Any]:
    """What Optuna would try next, knowing these trials: a function of them, so a stop changes nothing."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    choice, number = optuna.distributions.CategoricalDistribution, optuna.distributions.FloatDistribution
    distributions: dict[str, Any] = {
        name: choice(r.choices) if r.choices else number(r.low, r.high, log=r.log)
        for name, r in space.items()
    }
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=4)
    known, states = optuna.create_study(direction="maximize", sampler=sampler), optuna.trial.TrialState
    for line in lines:
        # To the sampler a trial that diverged is a pruned one: worse than those that came to an end.
        made = {"value": line["score"], "state": states.PRUNED if line["score"] is None else states.COMPLETE}
        params = {name: line["settings"][name] for name in distributions}
        with suppress(ValueError):  # outside the range: a study may start anywhere
            known.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, **made))
    return dict(known.ask(distributions).params)
