"""How many neighbours to ask, deployed: every κ and every share of the vote, on the same trained models.

    python benchmarks/beyond.py --fitted 0.8 --ways lntrust --out published.jsonl
    python benchmarks/beyond_asking.py --seeds 0-4 --published published.jsonl --out asking.jsonl

The models are those of the preset `lean`, in worlds of `lntrust tune` with .8 of each validation set to fit
to and the rest to score; no test label is there. What changes from line to line is only when a node stops
asking: κ, whether it is scaled by how neighbours usually lead, and β, the node's own share of the vote.
Beside each stands the published method in the same worlds. Means over nodes and seeds.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lntrust import load_study
from lntrust.cli.options import seeds_of
from lntrust.experiment.driver import Runs
from lntrust.experiment.evaluation import one_by_one
from lntrust.experiment.tune import tuning_world
from lntrust.learners.views import load_views
from lntrust.methods.lntrust.presets import LEAN
from lntrust.world import World, build_world

sys.path.insert(0, str(Path(__file__).parent))
from beyond import STUDIES

SHARES = (0.0, 0.1, 0.2, 0.3)  # β
KAPPAS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
Row = dict[str, Any]


def trained(base: str, sets: list[str], seed: int, views: Any) -> Runs:
    study = load_study(base, [*sets, "evaluation.every=100000"])
    settings = {**LEAN.settings, "self_share": 0.0}
    table = {**study.methods, "lntrust": {**study.methods.get("lntrust", {}), **settings}}
    study = study.model_copy(update={"methods": table})
    runs = Runs(
        study, "lntrust", [seed], views, make_world=lambda s, data, k, _: tuning_world(s, data, k, True, 0.8)
    )
    runs()
    return runs


def mixing(runs: Runs, share: float) -> Tensor:
    """[1, n, n]: with whom each node answers, β of the vote its own."""
    state, around = runs.state, runs.site.around
    n = runs.population.n
    alone, mix = torch.eye(n, device=runs.device), torch.zeros(n, n, device=runs.device)
    mix.scatter_add_(1, around.member, state.closed * around.mask)
    mix = (1 - share) * mix + share * alone
    return torch.where(state.together[:, None], mix, alone)[None]


def weights_of(world: World, labels: Tensor) -> Tensor:
    """[n, U]: what each example counts for with each node, every class as often as with itself."""
    w = world.partition.drawn_from
    w = torch.from_numpy(world.class_distribution if w is None else w).to(labels.device)
    count = torch.bincount(labels, minlength=w.shape[1])
    of_example = (w / count.clamp(min=1))[:, labels]
    return of_example / of_example.sum(1, keepdim=True)


def lines(name: str, seed: int, views: Any) -> list[Row]:
    runs = trained(*STUDIES[name], seed, views)
    ids = np.unique(runs.world.partition.test.values)  # of validation, in this world
    labels = torch.from_numpy(build_world(runs.study, views.dataset, seed).labels[ids]).to(runs.device)
    counts = weights_of(runs.world.worlds[0], labels)
    own = runs.population.predict_all(torch.from_numpy(ids).to(runs.device))
    heard, lead = runs.network.heard(own), runs.state.typical_margin
    out = []
    for share, usual, kappa in itertools.product(SHARES, (False, True), KAPPAS):
        certainty = kappa * lead if usual else kappa
        blend, asked = one_by_one(own, heard, mixing(runs, share), certainty)
        right = (blend.argmax(-1) == labels).to(counts)
        scores = {
            "pooled": float((counts * right).sum(1).mean()),
            "asked": float((counts * asked).sum(1).mean()),
        }
        out.append({"study": name, "self_share": share, "typical_margin": usual, "kappa": kappa, **scores})
    return out


def means(rows: list[list[Row]], published: list[Row]) -> Iterator[Row]:
    if len(published) != len(rows):
        sys.exit(f"--published: {len(published)} lines of lntrust for {len(rows)} seeds")
    beside = {k: float(np.mean([row[k] for row in published])) for k in ("test_pooled", "asked")}
    for several in zip(*rows, strict=True):
        scores = {k: float(np.mean([row[k] for row in several])) for k in ("pooled", "asked")}
        yield {**several[0], **scores, "published": beside["test_pooled"], "published_asked": beside["asked"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--studies", default="sparse-cifar10,sparse-cifar100,dense-cifar10")
    parser.add_argument("--published", type=Path, required=True, help="lines of beyond.py --fitted 0.8")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    published = [json.loads(row) for row in given.published.read_text("utf-8").splitlines()]
    for name in given.studies.split(","):
        base, sets = STUDIES[name]
        views = load_views(load_study(base, sets), "auto", None)
        seeds, found = seeds_of(given.seeds), []
        beside = [r for r in published if (r["study"], r["way"]) == (name, "lntrust") and r["seed"] in seeds]
        for seed in seeds:
            found.append(lines(name, seed, views))
            print(name, seed, flush=True)
        with given.out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in means(found, beside))


if __name__ == "__main__":
    main()
