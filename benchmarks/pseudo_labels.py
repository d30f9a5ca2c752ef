"""How good are the pseudo-labels that LNTrust learns from, and what do importance weights make of them?

    python benchmarks/pseudo_labels.py geo-eurosat sparse-cifar10 --seed 0 --out pseudo_labels.json

Looks up the true classes of the unlabelled pool, which no node ever sees: for a diagnosis, not for training.
Means over nodes and over the distilling rounds since the one before, at a few rounds:

- precision: share of kept pseudo-labels that are right; weighted: each by its ω
- own: how often the node's own model is right on the same examples
- favoured: precision where the pseudo-label is the node's most frequent class, and the share of them and of ω
- near: share of examples that come from the node's own region (geographic studies)
- effective: how many examples ω leaves, (Σω)²/Σω², as a share of the kept ones
- confidence: the mean of max p̄, to be held against precision; own: the same of the node's own model
- by class: precision and the node's own, over examples whose true class is frequent (the most frequent one),
  usual, rare (below half of an even share) at the node, and how many are of such a class
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lntrust import load_study
from lntrust.experiment import Run
from lntrust.learners.views import load_views
from lntrust.methods.base import Site, State
from lntrust.methods.lntrust.method import DistillTargets, LNTrust
from lntrust.study.loading import Study
from lntrust.world.partition.places import make_regions

SHOWN = (60, 100, 150, 200, 250)


class Watched(LNTrust):
    """LNTrust that has each lesson marked."""

    about = "lntrust, its lessons marked"
    truth: np.ndarray[Any, Any]
    region: np.ndarray[Any, Any] | None = None
    marks: list[dict[str, float]]

    def _distil(self, site: Site, state: State, lesson: DistillTargets) -> State:
        ids = lesson.ids.cpu().numpy()
        kept, omega = lesson.kept.cpu().numpy(), lesson.omega.cpu().numpy() * lesson.kept.cpu().numpy()
        said, true = lesson.predicted.cpu().numpy(), self.truth[ids]
        right = (said == true) & kept
        sure, own = (t.cpu().numpy() for t in site.network.own(lesson.ids).max(-1))
        favoured = site.class_distribution.argmax(-1).cpu().numpy()[:, None]
        mine = kept & (said == favoured)
        self.marks.append(
            {
                "kept": _mean(kept.mean(1)),
                "precision": _mean(right.sum(1) / np.maximum(kept.sum(1), 1)),
                "precision weighted by ω": _mean((omega * right).sum(1) / np.maximum(omega.sum(1), 1e-9)),
                "own": _mean(((own == true) & kept).sum(1) / np.maximum(kept.sum(1), 1)),
                "own weighted by ω": _mean(
                    (omega * ((own == true) & kept)).sum(1) / np.maximum(omega.sum(1), 1e-9)
                ),
                "favoured: precision": _mean(
                    (mine & right).sum(1) / np.where(mine.any(1), mine.sum(1), np.nan)
                ),
                "favoured: share": _mean(mine.sum(1) / np.maximum(kept.sum(1), 1)),
                "favoured: share of ω": _mean((omega * mine).sum(1) / np.maximum(omega.sum(1), 1e-9)),
                "effective": _mean(omega.sum(1) ** 2 / np.maximum((omega**2).sum(1) * kept.sum(1), 1e-9)),
                "confidence": _mean((lesson.p_bar.max(-1).values.cpu().numpy() * kept).sum(1) / kept.sum(1)),
                "confidence, own": _mean((sure * kept).sum(1) / np.maximum(kept.sum(1), 1)),
                **self._by_class(site, true, right, (own == true) & kept, kept),
                **self._near(ids),
            }
        )
        return super()._distil(site, state, lesson)

    def _by_class(
        self,
        site: Site,
        true: np.ndarray[Any, Any],
        right: np.ndarray[Any, Any],
        own: np.ndarray[Any, Any],
        kept: np.ndarray[Any, Any],
    ) -> dict[str, float]:
        w = site.class_distribution.cpu().numpy()
        share = np.take_along_axis(w, true, 1)
        frequent = share == w.max(1, keepdims=True)
        rare = (share < 0.5 / w.shape[1]) & ~frequent
        out = {}
        for name, which in (("frequent", frequent), ("usual", ~frequent & ~rare), ("rare", rare)):
            of = which & kept
            out[f"{name}: precision"] = float((right & of).sum() / max(1, of.sum()))
            out[f"{name}: own"] = float((own & of).sum() / max(1, of.sum()))
            out[f"{name}: share"] = float(of.sum() / max(1, kept.sum()))
        return out

    def _near(self, ids: np.ndarray[Any, Any]) -> dict[str, float]:
        if self.region is None:
            return {}
        return {"near": _mean((self.region[ids] == np.arange(len(ids))[:, None]).mean(1))}


def _mean(values: np.ndarray[Any, Any]) -> float:
    return float(np.nanmean(values))


def watch(study: Study, seed: int) -> dict[str, dict[str, float]]:
    """Marks by round: means over the rounds since the one shown before."""
    views = load_views(study, "auto", None)
    run = Run(study, "lntrust", seed, views)
    watched = Watched(run.method.settings)
    watched.truth, watched.marks = views.dataset.labels, []
    data = views.dataset
    if study.partition.by == "region" and data.latitude is not None and data.longitude is not None:
        watched.region = make_regions(data.latitude, data.longitude, study.graph.nodes)[0]
    run.method = watched
    out: dict[str, dict[str, float]] = {}

    def progress(done: int, total: int, loss: float | None) -> None:
        if done in SHOWN and watched.marks:
            columns = defaultdict(list)
            for mark in watched.marks:
                for name, value in mark.items():
                    columns[name].append(value)
            out[str(done)] = {name: float(np.mean(values)) for name, values in columns.items()}
            watched.marks.clear()
            print(study.name, done, {k: round(v, 3) for k, v in out[str(done)].items()}, flush=True)

    summary = run(progress=progress)
    return out | {"end": {name: summary[name] for name in ("test", "self", "test_pooled", "self_pooled")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("studies", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    found = {name: watch(load_study(name, ["evaluation.every=1000"]), given.seed) for name in given.studies}
    if given.out:
        given.out.write_text(json.dumps({"seed": given.seed, "studies": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
