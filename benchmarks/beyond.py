"""LNTrust beside its lean, safe and best presets, and each of their levers by itself.

    python benchmarks/beyond.py --on validation --seeds 0-4 --out choices.jsonl   # what choices are made by
    python benchmarks/beyond.py --on test --seeds 20-29 --out test.jsonl --ways lntrust,lntrust+lean   # then

On `validation` the worlds are those of `lntrust tune`: one half of each node's validation set is fitted to,
the other half scores, and test labels are not there at all; Independent trains on all that LNTrust's final
rounds may train on. A way is a method's name, or one of --more, or of `results/beyond/choices.jsonl`, with
its settings, as far as LNTrust still has them. One line per study, way and seed; what stands in the file
already is not run again.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from lntrust import load_study
from lntrust.cli.options import seeds_of
from lntrust.core.errors import CannotStackError
from lntrust.experiment.driver import Runs
from lntrust.experiment.tune import tuning_world
from lntrust.learners.views import load_views
from lntrust.methods.lntrust.method import LNTrust
from lntrust.study.settings import Study

sys.path.insert(0, str(Path(__file__).parent))
from beyond_ablations import CHOICES, harmed, rows_of

STUDIES = {
    "sparse-cifar10": ("sparse-cifar10", []),
    "sparse-cifar100": ("sparse-cifar100", []),
    "dense-cifar10": ("dense-cifar10", []),
    "geo-eurosat": ("geo-eurosat", []),
    "geo-blocks": ("geo-eurosat", ["partition.split=blocks"]),
    "wearables": ("wearables", []),
}


def run(
    study: Study, method: str, seeds: list[int], views: Any, fitted: float | None, folder: Path | None
) -> list[dict[str, Any]]:
    options: dict[str, Any] = {"folder": folder}
    if fitted is not None:
        options = {"make_world": lambda s, data, seed, _: tuning_world(s, data, seed, True, fitted)}
    try:
        return Runs(study, method, seeds, views, **options)()
    except CannotStackError:
        return [Runs(study, method, [seed], views, **options)()[0] for seed in seeds]


def line(summary: dict[str, Any], study: str, way: str, on: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a run."""
    scores = ("test", "self", "test_pooled", "self_pooled", "stage1", "p10")
    sent, n = summary["bytes"], summary["nodes"]
    phases = {name: {k: v / n for k, v in each.items()} for name, each in sent["by_phase"].items()}
    return {
        "study": study, "way": way, "on": on, "seed": summary["seed"], "settings": settings,
        **{name: summary[name] for name in scores}, "harmed": harmed(summary),
        "query": sent["query"] / n, "total": sent["total"] / n, "phases": phases,
        # Headers included: what a reply really takes.
        "reply": (sent["reply"] + sent["framing_by_kind"]["reply"]) / n,
        "asked": sent["asked_per_input"], "per_answer": sent["per_deployed_query"],
        "per_node": {k: summary["per_node"][k] for k in ("test", "self", "test_pooled", "self_pooled")},
        "seconds": summary["seconds"], "device": summary["device"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--on", choices=("validation", "test"), default="validation")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--studies", default=",".join(STUDIES))
    parser.add_argument("--ways", default=None, help="names with commas between; default: all")
    parser.add_argument("--more", type=Path, help="a JSON table of further ways")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fitted", type=float, default=0.5, help="validation: the share that is fitted to")
    parser.add_argument("--runs", type=Path, help="test: keep run folders here")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no run is begun")
    given = parser.parse_args()
    ways: dict[str, dict[str, Any]] = {
        row["way"]: row["settings"]
        for row in rows_of(CHOICES)
        if row["settings"].keys() <= LNTrust.settings_class.model_fields.keys()
        and row["settings"]
        and row["settings"].get("training_gate") != "evidence"
    }
    if given.more:
        ways |= json.loads(given.more.read_text("utf-8"))
    before = given.out.read_text("utf-8").splitlines() if given.out.exists() else []
    done = [json.loads(row) for row in before]
    known = {(row["study"], row["way"], row["on"], row["seed"]) for row in done}
    began = time.monotonic()
    for name in given.studies.split(","):
        base, sets = STUDIES[name]
        views = load_views(load_study(base, sets), "auto", None)
        for way in given.ways.split(",") if given.ways else ["independent", "lntrust", *ways]:
            left = [s for s in seeds_of(given.seeds) if (name, way, given.on, s) not in known]
            if not left or time.monotonic() - began > given.until:
                continue
            study = load_study(
                base, [*sets, *(["evaluation.every=100000"] if given.on == "validation" else [])]
            )
            settings = ways.get(way, {})
            method = "lntrust" if way in ways else way
            methods = {**study.methods, "lntrust": {**study.methods.get("lntrust", {}), **settings}}
            study = study.model_copy(update={"methods": methods})
            fitted = given.fitted if given.on == "validation" else None
            done_now = run(study, method, left, views, fitted, given.runs)
            rows = [line(s, name, way, given.on, settings) for s in done_now]
            with given.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            shown = ("test", "self", "test_pooled", "harmed", "asked", "reply", "total")
            mean = {k: sum(row[k] for row in rows) / len(rows) for k in shown}
            print(
                f"{name:16}{way:22} test {mean['test']:.4f} self {mean['self']:.4f} pooled "
                f"{mean['test_pooled']:.4f} harmed {mean['harmed']:.3f} reply {mean['reply'] / 1e6:8.3f} "
                f"total {mean['total'] / 1e6:9.2f} MB asked {mean['asked']:5.2f}  "
                f"{sum(row['seconds'] for row in rows):4.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
