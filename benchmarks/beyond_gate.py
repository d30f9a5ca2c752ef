"""When to answer with neighbours: every gate and every share of the vote, on the same trained models.

    python benchmarks/beyond_gate.py --seeds 0-4 --out gates.jsonl

The worlds are those of `lntrust tune`, with all of each node's validation set fitted to: no test label is
there at all. Nobody trains on validation labels either (no final rounds), so a node can be judged on the
validation sets of all the others, each class as frequent as with itself: as many examples as the test sets
have. Trained are the published method and the models of `safe` and of `best`; what changes from line to line
is only how they answer. One line per study, models and gate, means over nodes and seeds.
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
from lntrust.core.errors import CannotStackError
from lntrust.experiment.driver import Runs
from lntrust.experiment.evaluation import padded
from lntrust.experiment.tune import tuning_world
from lntrust.learners.views import load_views
from lntrust.methods.lntrust.presets import PRESETS
from lntrust.network.encodings import ReplyEncoding
from lntrust.trust.gates import effective, sign_test

sys.path.insert(0, str(Path(__file__).parent))
from beyond import STUDIES

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)  # β, of the vote
HEAD_STARTS = (0.0, 0.1, 0.25, 0.5)
EVIDENCE = (0.0, 0.8, 0.9, 0.95, 0.99)  # 0: no gate
MODELS = ("lntrust", "safe", "best")
Row = dict[str, Any]


def trained(base: str, sets: list[str], models: str, seeds: list[int], views: Any) -> Iterator[Runs]:
    """The runs, ended: all seeds in one, or one by one."""
    settings = {} if models == "lntrust" else PRESETS[models].settings
    settings = {k: v for k, v in settings.items() if k not in ("self_share", "final_rounds")}
    study = load_study(base, [*sets, "evaluation.every=100000"])
    table = {**study.methods, "lntrust": {**study.methods.get("lntrust", {}), **settings}}
    study = study.model_copy(update={"methods": table})

    def make(seeds: list[int]) -> Runs:
        return Runs(
            study, "lntrust", seeds, views,
            make_world=lambda s, data, seed, _: tuning_world(s, data, seed, True, 1.0),
        )  # fmt: skip

    try:
        several = [make(seeds)]
    except CannotStackError:
        several = [make([seed]) for seed in seeds]
    for runs in several:
        runs()
        yield runs


def nodes_of(runs: Runs, reply: str) -> Iterator[Row]:
    """For each node and β: its accuracy on the others' validation sets, and what its own has shown."""
    state, around, form = runs.state, runs.site.around, ReplyEncoding(reply)
    for s, world in enumerate(runs.world.worlds):
        nodes, lists = runs.world.nodes_of(s), world.partition.validation
        ids = np.unique(lists.values)
        asked = torch.from_numpy(padded([ids] * len(runs.seeds))).to(runs.device)
        p = runs.population.predict_all(asked if len(runs.seeds) > 1 else asked[0])[nodes]
        heard, labels = form.heard(p), torch.from_numpy(world.labels[ids]).to(p.device)
        owner = np.zeros(len(world.labels), dtype=np.int64)
        owner[lists.values] = lists.owner
        whose = torch.from_numpy(owner[ids]).to(p.device)
        w = world.partition.drawn_from
        w = torch.from_numpy(world.class_distribution if w is None else w).to(p)
        for i in range(world.n):
            alpha = state.closed[nodes.start + i]
            member = around.member[nodes.start + i] - nodes.start
            together = alpha[0] * p[i] + torch.einsum("d,duc->uc", alpha[1:], heard[member[1:]])
            mine, right = whose == i, [(p[i].argmax(-1) == labels)]
            right += [((1 - b) * together + b * p[i]).argmax(-1).eq(labels) for b in SHARES]
            yield {
                "score": [_weighted(each, labels, w[i], ~mine) for each in right],
                "won": [int((each & ~right[0])[mine].sum()) for each in right[1:]],
                "lost": [int((right[0] & ~each)[mine].sum()) for each in right[1:]],
                "voices": float(effective(alpha[None, 1:])[0]),
                "published": bool(state.together[nodes.start + i]),
            }


def _weighted(right: Tensor, labels: Tensor, w: Tensor, where: Tensor) -> float:
    """Σ_c w(c) · accuracy on class c, as the pooled score of a run."""
    one_hot = torch.nn.functional.one_hot(labels[where], len(w)).to(w)
    count = one_hot.sum(0)
    weight = w * (count > 0)
    return float((weight * (right[where].to(w) @ one_hot) / count.clamp(min=1)).sum() / weight.sum())


def lines(study: str, models: str, nodes: list[Row]) -> Iterator[Row]:
    score = np.array([node["score"] for node in nodes])
    alone, n = score[:, 0], {"study": study, "models": models, "nodes": len(nodes)}

    def line(together: np.ndarray, ours: np.ndarray) -> Row:
        got = np.where(together, ours, alone)
        return {
            "pooled": float(got.mean()), "alone": float(alone.mean()),
            "harmed": float((got < alone).mean()), "together": float(together.mean()),
        }  # fmt: skip

    if models == "lntrust":
        yield {**n, "gate": "published", **line(np.array([x["published"] for x in nodes]), score[:, 1])}
        return
    voices = torch.tensor([node["voices"] for node in nodes])
    for (k, share), head in itertools.product(enumerate(SHARES), HEAD_STARTS):
        won, lost = (torch.tensor([x[name][k] for x in nodes]).double() for name in ("won", "lost"))
        chance = sign_test(won + head * voices, lost).numpy()
        for evidence in EVIDENCE:
            gate = {"self_share": share, "prior_wins": head, "evidence": evidence}
            yield {**n, **gate, **line(chance >= evidence, score[:, k + 1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--studies", default=",".join(STUDIES))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    for name in given.studies.split(","):
        base, sets = STUDIES[name]
        views = load_views(load_study(base, sets), "auto", None)
        for models in MODELS:
            nodes: list[Row] = []
            reply = "float32" if models == "lntrust" else PRESETS[models].settings.get("reply", "float32")
            for runs in trained(base, sets, models, seeds_of(given.seeds), views):
                nodes += nodes_of(runs, reply)
            with given.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in lines(name, models, nodes))
            print(name, models, len(nodes), "nodes", flush=True)


if __name__ == "__main__":
    main()
