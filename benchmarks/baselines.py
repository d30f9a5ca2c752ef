"""All methods side by side: tables out of the summaries that `lntrust run --json` prints.

    lntrust run sparse-cifar10 --method independent --method dml --seed 0 --seed 1 --json > runs.jsonl
    python benchmarks/baselines.py runs.jsonl --out benchmarks/results/baselines.json

Prints a table per study, in Markdown; with --out, also keeps every seed's values. Harmed: share of nodes that
are worse off deployed than with their own model; below Independent: than Independent's node of the same seed.
Both by the pooled score. Traffic is payload in MB per node, anchors counted as parameters.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

KINDS = ("query", "reply", "parameters", "anchors")
Run = dict[str, Any]


def compact(run: Run, independent: Run | None) -> Run:
    """What the tables need of one run."""
    own, nodes = run["per_node"]["test_pooled"], run["nodes"]
    models, below = run["per_node"]["self_pooled"], None
    if own and independent:
        alone = independent["per_node"]["test_pooled"]
        below = fmean(a < b for a, b in zip(own, alone, strict=True))
    return {
        "seed": run["seed"],
        "device": run["device"],
        **{k: run[k] for k in ("test", "self", "test_pooled", "self_pooled", "stage1")},
        "harmed": fmean(a < b for a, b in zip(own, models, strict=True)) if own else run["harmed"],
        "below_independent": below,
        "mb_per_node": {kind: run["bytes"][kind] / nodes / 1e6 for kind in KINDS},
        "bytes_per_answer": run["bytes"]["per_deployed_query"],
        "variants": {name: scores["test"] for name, scores in run["variants"].items()},
    }


def collect(runs: list[Run]) -> dict[str, dict[str, list[Run]]]:
    """study → method → its runs, by seed."""
    alone = {(r["study"], r["seed"]): r for r in runs if named(r) == "independent"}
    out: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(runs, key=lambda r: r["seed"]):
        out[run["study"]][named(run)].append(compact(run, alone.get((run["study"], run["seed"]))))
    return out


def named(run: Run) -> str:
    return run["method"] + (f" → {run['deploy']}" if run["deploy"] else "")


def spread(values: list[float]) -> str:
    """.775 ± .023"""
    text = f"{fmean(values):.3f}" + (f" ± {pstdev(values):.3f}" if len(values) > 1 else "")
    return text.replace("0.", ".")


def table(study: str, methods: dict[str, list[Run]]) -> str:
    """Best Test first."""
    head = "| method | Test | Self | pooled | query | reply | parameters | harmed | below Independent |"
    lines = [f"**{study}**", "", head, "|---" * 9 + "|"]
    for name, runs in sorted(methods.items(), key=lambda item: -fmean(r["test"] for r in item[1])):
        sent = {kind: fmean(r["mb_per_node"][kind] for r in runs) for kind in KINDS}
        tensors = sent["parameters"] + sent["anchors"]
        below = [r["below_independent"] for r in runs if r["below_independent"] is not None]
        cells = [
            name + ("" if len(runs) == 3 else f" ({len(runs)} seed{'s' * (len(runs) > 1)})"),
            spread([r["test"] for r in runs]),
            spread([r["self"] for r in runs]),
            spread([r["test_pooled"] for r in runs]),
            *(f"{mb:,.1f}" if mb else "0" for mb in (sent["query"], sent["reply"], tensors)),
            f"{fmean(r['harmed'] for r in runs):.2f}",
            f"{fmean(below):.2f}" if below else "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
        for variant in runs[0]["variants"]:
            score = spread([r["variants"][variant] for r in runs])
            lines.append(f"| · {variant} | {score} | | | | | | | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("summaries", nargs="+", type=Path, help="files with one JSON summary per line")
    parser.add_argument("--out", type=Path, help="where every seed's values are kept, as JSON")
    parser.add_argument("--about", default="", help="hardware and versions, for that file")
    arguments = parser.parse_args()
    runs = [json.loads(line) for path in arguments.summaries for line in path.open(encoding="utf-8")]
    collected = collect(runs)
    for study, methods in sorted(collected.items()):
        print(table(study, methods), end="\n\n")
    if arguments.out:
        text = json.dumps({"about": arguments.about, "studies": collected}, indent=1, sort_keys=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
