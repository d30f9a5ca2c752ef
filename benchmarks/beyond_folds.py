"""Folds: trust and the gate learned from every label, by training as many times as there are folds.

    python benchmarks/beyond_folds.py --seeds 0-4 --out folds.jsonl

Each node's labels are cut into K parts. For every part all nodes train on the others, with neighbours and
probes of their own; what the neighbours then say about the part is kept. Trust and the deployment gate are
fitted to what was said about all K parts, and the models of the first fold, after their final rounds on all
labels, answer with them. Beside it stands the preset as it is, which has one part to fit trust to.

The worlds are those of `lntrust tune`: half of each validation set (or 1 − --fitted of it) scores, the rest
and the training set are the labels, and no test label is there. One line per study, preset and number of
folds, means over nodes and seeds.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray

from lntrust import load_study
from lntrust.cli.options import seeds_of
from lntrust.core.errors import CannotStackError
from lntrust.experiment.driver import Runs
from lntrust.experiment.tune import tuning_world
from lntrust.learners.views import load_views
from lntrust.methods import Site
from lntrust.methods.lntrust.exchange import collect_evidence
from lntrust.methods.lntrust.method import LNTrust
from lntrust.methods.lntrust.presets import PRESETS
from lntrust.methods.lntrust.state import TrustState, learn_trust
from lntrust.study.settings import Study
from lntrust.trust.evidence import Evidence
from lntrust.trust.features import probe_response
from lntrust.trust.rivals import make_weighting
from lntrust.world import Dataset, Ragged, World
from lntrust.world.partition.partition import groups

sys.path.insert(0, str(Path(__file__).parent))
from beyond import STUDIES
from beyond_ablations import harmed

REFITS = 15  # after the first fit, as often as trust is refreshed in a run of `safe`
Row = dict[str, Any]


def parts(
    ids: Int[ndarray, "m"], group: Int[ndarray, "N"], K: int, draw: list[int]
) -> list[Int[ndarray, "_"]]:
    """K parts of about the same size. What belongs together stays so, and nobody is left without a label."""
    names, inverse = np.unique(group[ids], return_inverse=True)
    if len(names) < 2:
        return [ids[:0]] * K
    order = np.random.default_rng(draw).permutation(len(names))
    size = np.bincount(inverse.reshape(-1))[order]
    part = np.empty(len(names), dtype=np.int64)
    part[order] = (np.cumsum(size) - size) * K // len(ids)
    return [ids[part[inverse.reshape(-1)] == k] for k in range(K)]


def fold_world(study: Study, dataset: Dataset, seed: int, fitted: float, k: int, K: int) -> World:
    """The tuning world with the k-th part of each node's labels in the place of its validation set."""
    world = tuning_world(study, dataset, seed, True, fitted)
    p, group = world.partition, groups(study.partition, dataset)
    labels = p.train.joined(p.validation)
    held = Ragged.of([parts(ids, group, K, [seed, i])[k] for i, ids in enumerate(labels)])
    train = Ragged.of([ids[~np.isin(ids, out)] for ids, out in zip(labels, held, strict=True)])
    return replace(world, partition=replace(p, train=train, validation=held))


def joined(folds: Sequence[Evidence]) -> Evidence:
    """What all folds have shown, as if each node had had one large validation set."""
    owner = torch.cat([torch.repeat_interleave(e.offsets.diff()) for e in folds])
    order = owner.argsort(stable=True)
    probabilities = torch.cat([e.probabilities for e in folds])[order]
    labels = torch.cat([e.labels for e in folds])[order]
    offsets = torch.stack([e.offsets for e in folds]).sum(0)
    mask = torch.stack([e.mask for e in folds]).all(0)
    rho = probe_response(probabilities, labels, offsets) * mask[..., None]
    phi = torch.stack([e.phi for e in folds]).mean(0)
    return Evidence(mask, probabilities, labels, offsets, rho, phi, folds[0].w)


class Folded(LNTrust):
    """Answers with the trust, and by the gate, that all folds together have taught it."""

    shown: Evidence

    def finish(self, site: Site, state: TrustState) -> TrustState:
        s, nodes = self.settings, range(site.population.n)
        weighting = make_weighting(s.weighting, site.world.seeds, s.prior, s.prior_examples)
        learned = learn_trust(weighting, None, self.shown, s, site.schedule.rounds + 1, nodes)
        for _ in range(REFITS):
            learned = learn_trust(weighting, learned.memory, self.shown, s, site.schedule.rounds + 1, nodes)
        return replace(learned, log=state.log + learned.log)


def with_settings(base: str, sets: list[str], preset: str, rounds: int = 0, **changed: Any) -> Study:
    """The study with a preset's settings; `rounds` of Stage 2 are left out at its end."""
    study = load_study(base, [*sets, "evaluation.every=100000"])
    settings = {**study.methods.get("lntrust", {}), **PRESETS[preset].settings, **changed}
    left = study.training.stage2_rounds - rounds
    training = study.training.model_copy(update={"stage2_rounds": left})
    return study.model_copy(update={"methods": {**study.methods, "lntrust": settings}, "training": training})


def evidence_of(runs: Runs) -> Evidence:
    """What a last refresh would show."""
    method = runs.method
    assert isinstance(method, LNTrust)
    pool = bool(runs.world.partition.shard.lengths.min() > 0)
    with runs.network.uncharged():
        return collect_evidence(runs.site, method.settings.sample if pool else 0, runs.rounds + 1)


def folded(
    base: str, sets: list[str], preset: str, seeds: list[int], views: Any, fitted: float, K: int
) -> list[Row]:
    final = PRESETS[preset].settings["final_rounds"]
    shown, sent = [], [0.0] * len(seeds)
    for k in range(K):
        study = with_settings(base, sets, preset, final, final_rounds=0)
        runs = Runs(
            study,
            "lntrust",
            seeds,
            views,
            make_world=lambda s, d, seed, _, k=k: fold_world(s, d, seed, fitted, k, K),
        )
        summaries = runs()
        shown.append(evidence_of(runs))
        if k:  # the first goes on, and is counted there
            sent = [a + s["bytes"]["total"] for a, s in zip(sent, summaries, strict=True)]
    runs = Runs(
        with_settings(base, sets, preset), "lntrust", seeds, views,
        make_world=lambda s, d, seed, _: fold_world(s, d, seed, fitted, 0, K),
    )  # fmt: skip
    method = Folded(runs.method.settings)
    method.shown = joined(shown)
    runs.method = method
    return [{**s, "sent": s["bytes"]["total"] + more} for s, more in zip(runs(), sent, strict=True)]


def single(
    base: str, sets: list[str], preset: str, seeds: list[int], views: Any, fitted: float, K: int
) -> list[Row]:
    """The preset as it is. K = 1: one part to fit trust to."""
    runs = Runs(
        with_settings(base, sets, preset), "lntrust", seeds, views,
        make_world=lambda s, d, seed, _: tuning_world(s, d, seed, True, fitted),
    )  # fmt: skip
    return [{**s, "sent": s["bytes"]["total"]} for s in runs()]


def line(study: str, preset: str, K: int, seeds: list[int], rows: list[Row]) -> Row:
    names = ("test", "self", "test_pooled", "self_pooled", "sent")
    means = {name: float(np.mean([row[name] for row in rows])) for name in names}
    means["harmed"] = float(np.mean([harmed(row) for row in rows]))
    together = [row["method_report"]["answers_together"] for row in rows]
    asked = float(np.mean([row["bytes"]["asked_per_input"] for row in rows]))
    return {
        "study": study, "preset": preset, "folds": K, "seeds": seeds, **means,
        "together": float(np.mean(together)), "asked": asked,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--studies", default=",".join(STUDIES))
    parser.add_argument("--presets", default="safe,best")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--fitted", type=float, default=0.5, help="share of each validation set not to score")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    seeds = seeds_of(given.seeds)
    for name in given.studies.split(","):
        base, sets = STUDIES[name]
        views = load_views(load_study(base, sets), "auto", None)
        for preset in given.presets.split(","):
            for make, K in ((single, 1), (folded, given.folds)):
                try:
                    rows = make(base, sets, preset, seeds, views, given.fitted, K)
                except CannotStackError:
                    rows = [make(base, sets, preset, [seed], views, given.fitted, K)[0] for seed in seeds]
                got = {**line(name, preset, K, seeds, rows), "fitted": given.fitted}
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(got) + "\n")
                print({k: round(v, 4) if isinstance(v, float) else v for k, v in got.items()}, flush=True)


if __name__ == "__main__":
    main()
