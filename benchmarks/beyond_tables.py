"""The tables of docs/lean.md and docs/safe.md and the presets' table in README, out of the committed runs.

    python benchmarks/beyond_tables.py --keep RUNS.parquet CHOICES.jsonl …   # of beyond.py, to be kept
    python benchmarks/beyond_tables.py --draw                                # write tables and figures anew
    python benchmarks/beyond_tables.py --check                               # say which documents differ

`runs.parquet` holds the runs on test, of all three readings; `choices.jsonl` the means over seeds of those on
validation; `gates.jsonl` (beyond_gate.py) and `asking.jsonl` (beyond_asking.py) what the last choice was made
by.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lntrust.experiment.collection import Record, read_runs, write_collection
from lntrust.report.comparison import difference, rows_of

sys.path.insert(0, str(Path(__file__).parent))
from reproduction import MARK, ROOT

FOLDER = ROOT / "benchmarks" / "results" / "beyond"
RUNS, CHOICES = FOLDER / "runs.parquet", FOLDER / "choices.jsonl"
GATES, ASKING = FOLDER / "gates.jsonl", FOLDER / "asking.jsonl"
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "lean.md", ROOT / "docs" / "safe.md"]
NAMES = ("sparse-cifar10", "sparse-cifar100", "dense-cifar10", "geo-eurosat", "geo-blocks", "wearables")
# The presets were chosen three times, each time on validation data, and read on fresh seeds.
READINGS = {"first": ((0, 4), (5, 9)), "second": ((10, 14), (15, 19)), "third": ((20, 24), (25, 29))}
GROUPS = READINGS["third"]
Runs = dict[tuple[str, str], list[Record]]  # by study and method, sorted by seed


def read() -> Runs:
    out: Runs = defaultdict(list)
    for record in sorted(read_runs([RUNS]), key=lambda r: r.seed):
        blocks = record.identity["study"]["partition"]["split"] == "blocks"
        out["geo-blocks" if blocks else record.study, record.method].append(record)
    return out


def of(runs: Runs, study: str, method: str, group: tuple[int, int]) -> list[Record]:
    return [record for record in runs[study, method] if group[0] <= record.seed <= group[1]]


# -- numbers --------------------------------------------------------------------------------------


def mean(records: Sequence[Record], value: Callable[[dict[str, Any]], float]) -> float:
    return float(np.mean([value(record.summary) for record in records]))


def test(records: Sequence[Record]) -> str:
    return dot(mean(records, lambda s: s["test"]))


def dot(number: float) -> str:
    return f"{number:.3f}".replace("0.", ".", 1)


def against(ours: Sequence[Record], theirs: Sequence[Record], score: str = "test") -> str:
    """A difference with its 95 % interval, paired by seed and node."""
    found = difference(ours, theirs, score)
    if found is None:
        return "–"
    return f"{found.mean:+.3f} ({found.low:+.3f} … {found.high:+.3f})".replace("0.", ".")


def replies(s: dict[str, Any]) -> float:
    """Bytes of all replies, headers included, per node."""
    return float((s["bytes"]["reply"] + s["bytes"]["framing_by_kind"]["reply"]) / s["nodes"])


def total(s: dict[str, Any]) -> float:
    return float(s["bytes"]["total"])


def megabytes(number: float) -> str:
    return f"{number / 1e6:,.0f}" if number >= 1e7 else f"{number / 1e6:.2f}"


def share(ours: float, theirs: float) -> str:
    return f"{100 * ours / theirs:.2f} %" if ours < 0.1 * theirs else f"{100 * ours / theirs:.0f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| :-- |" + " --: |" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


# -- tables ---------------------------------------------------------------------------------------


def lean(runs: Runs) -> str:
    rows = []
    for study in NAMES:
        for group in GROUPS:
            full, ours = (of(runs, study, name, group) for name in ("lntrust", "lntrust+lean"))
            asked = [mean(each, lambda s: s["bytes"]["asked_per_input"]) for each in (full, ours)]
            told = [mean(each, replies) for each in (full, ours)]
            query = [mean(each, lambda s: s["bytes"]["query"] / s["nodes"]) for each in (full, ours)]
            total = [mean(each, lambda s: s["bytes"]["total"] / s["nodes"]) for each in (full, ours)]
            rows.append(
                [
                    study, f"{group[0]}–{group[1]}", test(full), test(ours), against(ours, full),
                    against(ours, full, "test_pooled"),
                    f"{megabytes(told[0])} → {megabytes(told[1])}", share(told[1], told[0]),
                    f"{megabytes(query[0])} → {megabytes(query[1])}", share(total[1], total[0]),
                    f"{asked[0]:.2f} → {asked[1]:.2f}", share(asked[1], asked[0]),
                ]
            )  # fmt: skip
    head = ("study", "seeds", "LNTrust", "lean", "Test, lean − LNTrust", "pooled, lean − LNTrust",
            "replies, MB per node", "share", "queries, MB per node", "share of all bytes",
            "asked per answer", "share")  # fmt: skip
    return table(head, rows)


def safe(runs: Runs, preset: str = "safe") -> str:
    rows = []
    for study in NAMES:
        for group in GROUPS:
            alone, full, ours = (
                of(runs, study, name, group) for name in ("independent", "lntrust", f"lntrust+{preset}")
            )
            harmed = [dot(mean(each, lambda s: s["harmed"])) for each in (full, ours)]
            rows.append(
                [
                    study, f"{group[0]}–{group[1]}", test(alone), test(full), test(ours),
                    against(ours, alone), against(ours, full), f"{harmed[0]} → {harmed[1]}",
                    share(mean(ours, total), mean(full, total)),
                ]
            )  # fmt: skip
    head = ("study", "seeds", "Independent", "LNTrust", preset, f"{preset} − Independent",
            f"{preset} − LNTrust", "harmed, LNTrust → ours", "bytes")  # fmt: skip
    return table(head, rows)


def presets(runs: Runs) -> str:
    """README's: all seeds together."""
    group = (GROUPS[0][0], GROUPS[-1][1])
    rows = []
    for study in NAMES:
        names = ("independent", "lntrust", "lntrust+lean", "lntrust+safe", "lntrust+best")
        each = [of(runs, study, name, group) for name in names]
        full, best = mean(each[1], replies), mean(each[4], replies)
        rows.append([study, *(test(some) for some in each), share(best, full)])
    head = ("study", "Independent", "LNTrust", "lean", "safe", "best", "best's replies, of LNTrust's")
    return table(head, rows)


def targets(runs: Runs) -> str:
    """What was wanted, and the worst row of each reading."""

    def gaps(method: str, other: str, names: Sequence[str], groups: Sequence[tuple[int, int]]) -> str:
        found = {
            (study, g): mean(of(runs, study, method, g), lambda s: s["test"])
            - mean(of(runs, study, other, g), lambda s: s["test"])
            for study in names
            for g in groups
        }
        (study, _), least = min(found.items(), key=lambda item: item[1])
        return f"{least:+.4f} ({study})".replace("0.", ".")

    def most(value: Callable[[dict[str, Any]], float], groups: Sequence[tuple[int, int]]) -> str:
        found = {
            (study, g): mean(of(runs, study, "lntrust+lean", g), value)
            / mean(of(runs, study, "lntrust", g), value)
            for study in NAMES[:3]
            for g in groups
        }
        (study, _), worst = max(found.items(), key=lambda item: item[1])
        return f"{100 * worst:.2f} % ({study})"

    def harm(method: str, groups: Sequence[tuple[int, int]]) -> str:
        rows = [
            [round(sum(r.summary["harmed"] * r.summary["nodes"] for r in of(runs, study, name, g)))
             for name in ("lntrust", method)]
            for study in NAMES for g in groups
        ]  # fmt: skip
        halved, (before, after) = sum(2 * b <= a for a, b in rows), map(sum, zip(*rows, strict=True))
        return f"{halved} of {len(rows)}; nodes {before} → {after}"

    geo, others = NAMES[3:5], (*NAMES[:3], *NAMES[5:])
    made: list[tuple[str, Callable[[Sequence[tuple[int, int]]], str]]] = [
        ("lean: replies, of LNTrust's ≤ 1 %", lambda g: most(replies, g)),
        ("lean: Test − LNTrust ≥ −.003", lambda g: gaps("lntrust+lean", "lntrust", NAMES[:3], g)),
        ("lean: deployed questions ≤ ⅓", lambda g: most(lambda s: s["bytes"]["asked_per_input"], g)),
        ("safe: geo, Test − Independent ≥ 0", lambda g: gaps("lntrust+safe", "independent", geo, g)),
        ("safe: others, Test − LNTrust ≥ −.002", lambda g: gaps("lntrust+safe", "lntrust", others, g)),
        ("safe: rows where harmed is at most half", lambda g: harm("lntrust+safe", g)),
        ("best: geo, Test − Independent", lambda g: gaps("lntrust+best", "independent", geo, g)),
        ("best: others, Test − LNTrust", lambda g: gaps("lntrust+best", "lntrust", others, g)),
        ("best: rows where harmed is at most half", lambda g: harm("lntrust+best", g)),
    ]
    head = ["target; worst row", *(f"{name}, seeds {g[0][0]}–{g[-1][1]}" for name, g in READINGS.items())]
    return table(head, [[about, *(value(g) for g in READINGS.values())] for about, value in made])


def chosen_by() -> dict[tuple[str, str], dict[str, Any]]:
    """The means on validation, by study and way."""
    lines = map(json.loads, CHOICES.read_text("utf-8").splitlines())
    return {(row["study"], row["way"]): row for row in lines}


def choices(ways: Sequence[tuple[str, str]], names: Sequence[str]) -> str:
    """Ablations on validation: each way's Test, and what it sends, beside the published method's."""
    kept = chosen_by()
    rows = []
    for way, about in ways:
        cells = []
        for study in names:
            row, full = kept.get((study, way)), kept[study, "lntrust"]
            if row is None:
                cells += ["", "", "", ""]
                continue
            cells += [
                f"{row['test']:.4f}".replace("0.", "."),
                f"{row['test_pooled'] - full['test_pooled']:+.4f}".replace("0.", "."),
                "–" if way == "independent" else share(row["reply"], full["reply"]),
                f"{row['asked']:.2f}",
            ]  # fmt: skip
        rows.append([about, *cells])
    head = ["", *(f"{study} {what}" for study in names for what in ("Test", "Δ pooled", "replies", "asked"))]
    return table(head, rows)


def harms(ways: Sequence[tuple[str, str]], names: Sequence[str]) -> str:
    """The same for safety: Test, Self and harmed."""
    kept = chosen_by()
    rows = []
    for way, about in ways:
        cells = []
        for study in names:
            row = kept.get((study, way))
            numbers = (row["test"], row["self"], row["harmed"]) if row else ()
            cells += [dot(number) for number in numbers] or [""] * 3
        rows.append([about, *cells])
    head = ["", *(f"{study} {what}" for study in names for what in ("Test", "Self", "harmed"))]
    return table(head, rows)


LEVERS = (
    ("lntrust", "published"),
    ("k1", "`top_k = 1`"), ("k2", "`top_k = 2`"), ("k4", "`top_k = 4`"),
    ("recall5", "`recall = 5`"), ("recall20", "`recall = 20`"), ("recall50", "`recall = 50`"),
    ("uint8", "`reply = uint8`"), ("top1", "`reply = top1`"), ("top3", "`reply = top3`"),
    ("top8", "`reply = top8`"),
    ("F20", "`refresh = 20`"), ("F40", "`refresh = 40`"), ("sample100", "`sample = 100`"),
    ("thin4", "`top_k = 2`, `probe_others = 4`"),
    ("ans2", "`answer_k = 2`"), ("ans4", "`answer_k = 4`"), ("ans8", "`answer_k = 8`"),
    ("leanF", "all, κ = .7"),
    ("leanI", "all, κ = .7, `top_k = 4`, `recall = 40`"),
    ("leanG", "all, κ = .7, `top5`, `recall = 40`, `probe_others = 2`"),
)  # fmt: skip
GUARDS = (
    ("independent", "Independent"), ("lntrust", "published"),
    ("power.5", "ω to the power ½"), ("power0", "no ω"),
    ("evtrain", "training gate by evidence"), ("look.8", "look-back at .8"),
    ("evdep.95", "deployment gate by evidence, .95"), ("evdep.95h", "with a head start of ¼"),
    ("final50", "50 final rounds"), ("final100", "100 final rounds"),
    ("acc10", "prior: accuracy, 10 examples"), ("acc40", "prior: accuracy, 40 examples"),
    ("self10", "prior: self, 10 examples"), ("cal", "calibrated"),
    ("P", "no ω, 50 final rounds, prior of 20"), ("Ps", "and a share of .2"),
    ("Pe", "or evidence at .95"), ("Peh", "with a head start of ¼"),
    ("lntrust+safe", "and both: `safe`"), ("safe-train", "`safe`, training gate by evidence"),
    ("safe-look", "`safe`, look-back at .9"), ("safe-cal", "`safe`, calibrated"),
)  # fmt: skip
SHOWN = (  # β, head start, evidence
    (0.0, 0.0, 0.0), (0.2, 0.0, 0.0), (0.2, 0.0, 0.8), (0.2, 0.0, 0.95), (0.2, 0.25, 0.8), (0.2, 0.25, 0.9),
    (0.2, 0.25, 0.95), (0.2, 0.25, 0.99), (0.2, 0.5, 0.95), (0.2, 0.5, 0.99), (0.0, 0.25, 0.95),
    (0.4, 0.25, 0.95),
)  # fmt: skip
STOPS = (  # β, by the usual lead, κ
    (0.0, False, 1.0), (0.0, False, 0.6), (0.0, False, 0.4), (0.0, False, 0.2), (0.0, True, 1.0),
    (0.0, True, 0.8), (0.0, True, 0.6), (0.0, True, 0.4), (0.2, False, 1.0), (0.2, False, 0.2),
    (0.2, True, 1.0), (0.2, True, 0.8), (0.2, True, 0.7), (0.2, True, 0.6), (0.2, True, 0.4),
)  # fmt: skip


def gates() -> str:
    """Gates and shares of the vote on the same models: those of `safe`, before its final rounds."""
    rows = [json.loads(line) for line in GATES.read_text("utf-8").splitlines()]
    names = [study for study in NAMES if any(row["study"] == study for row in rows)]
    published = {row["study"]: row for row in rows if row["models"] == "lntrust"}
    found = {
        (row["study"], row["self_share"], row["head_start"], row["evidence"]): row
        for row in rows
        if row["models"] == "safe"
    }
    harmed = [cell for s in names for cell in ("", dot(published[s]["harmed"]))]
    out = [["published", "", "", *harmed]]
    for share, head, evidence in SHOWN:
        cells = []
        for study in names:
            row = found[study, share, head, evidence]
            gained = row["pooled"] - published[study]["pooled"]
            cells += [f"{gained:+.3f}".replace("0.", "."), dot(row["harmed"])]
        out.append([f"{share:g}", f"{head:g}", f"{evidence:g}" if evidence else "no gate", *cells])
    head_row = ["`self_share`", "`head_start`", "`evidence`"]
    return table([*head_row, *(f"{s} {what}" for s in names for what in ("Δ pooled", "harmed"))], out)


def asking() -> str:
    """When to stop asking, on the same models: those of `lean`."""
    rows = [json.loads(line) for line in ASKING.read_text("utf-8").splitlines()]
    found = {(row["study"], row["self_share"], row["usual_lead"], row["kappa"]): row for row in rows}
    names = [study for study in NAMES if any(row["study"] == study for row in rows)]
    out = []
    for share, usual, kappa in STOPS:
        cells = []
        for study in names:
            row = found[study, share, usual, kappa]
            cells.append(f"{row['pooled'] - row['published']:+.4f}".replace("0.", "."))
            cells.append(f"{100 * row['asked'] / row['published_asked']:.1f} %")
        out.append([f"{share:g}", f"{kappa:g}{' × usual lead' if usual else ''}", *cells])
    return table(["β", "κ", *(f"{s} {what}" for s in names for what in ("Δ pooled", "asked"))], out)


def keep(files: Sequence[Path]) -> None:
    """Add to what is committed: no trust of single members, rounds of the last reading only, no single nodes
    of a choice."""
    left = ("trust", "together", "importance_per_node")
    records = {}
    for record in read_runs(
        [*([RUNS] if RUNS.exists() else []), *(p for p in files if p.suffix == ".parquet")]
    ):
        report = {k: v for k, v in record.summary["method_report"].items() if k not in left}
        rounds = {"rounds": record.tables["rounds"]} if record.seed >= GROUPS[0][0] else {}
        key = (record.study, record.identity["study"]["partition"]["split"], record.method, record.seed)
        records[key] = replace(record, summary={**record.summary, "method_report": report}, tables=rounds)
    write_collection(list(records.values()), RUNS)
    by: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    for path in (p for p in files if p.suffix == ".jsonl"):
        for row in map(json.loads, path.read_text("utf-8").splitlines()):
            row["reply"] = sum(phase["reply"] for phase in row["phases"].values())  # payload
            by[row["study"], row["way"]][row["seed"]] = row
    out = chosen_by() if CHOICES.exists() else {}
    for (study, way), seeds in by.items():
        rows = list(seeds.values())
        numbers = ("test", "self", "test_pooled", "self_pooled", "harmed", "reply", "query", "total", "asked")
        means = {name: float(np.mean([row[name] for row in rows])) for name in numbers}
        of_way = {"study": study, "way": way, "seeds": sorted(seeds), "settings": rows[0]["settings"]}
        out[study, way] = {**of_way, **means}
    CHOICES.write_text("".join(json.dumps(out[key]) + "\n" for key in sorted(out)), "utf-8")


def draw() -> None:
    """Accuracy against bytes: LNTrust and its presets among the baselines of the paper's tables."""
    from lntrust.report.figure_bytes import draw_bytes

    paper = read_runs([ROOT / "benchmarks" / "results" / "reproduction" / "runs-tables.parquet"])
    first, last = GROUPS[0]
    ours = [record for record in read_runs([RUNS]) if first <= record.seed <= last]
    known = {record.method for record in ours}
    for study in NAMES[:3]:
        others = [
            record
            for record in paper
            if record.identity["study"].get("reading", "honest") == "honest" and record.method not in known
        ]
        rows = rows_of([record for record in [*others, *ours] if record.study == study])[study]
        figure = draw_bytes(rows, f"{study}, seeds {first}–{last}; baselines 0–2")
        figure.savefig(FOLDER / f"{study}-bytes.png", dpi=200)


def renewed(text: str, made: dict[str, str]) -> str:
    return MARK.sub(lambda m: f"{m[1]}\n{made[m[2]]}\n{m[3]}" if m[2] in made else m[0], text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--draw", action="store_true", help="make the figures, too")
    parser.add_argument("--keep", type=Path, nargs="+", metavar="FILE")
    given = parser.parse_args()
    if given.keep:
        keep(given.keep)
    if given.draw:
        draw()
    runs = read()
    made = {
        "beyond-presets": presets(runs),
        "beyond-targets": targets(runs),
        "beyond-lean": lean(runs),
        "beyond-safe": safe(runs),
        "beyond-best": safe(runs, "best"),
        "beyond-levers": choices(LEVERS, NAMES[:3]),
        "beyond-gates": gates(),
        "beyond-asking": asking(),
        "beyond-guards": harms(GUARDS, ("sparse-cifar10", "dense-cifar10", "geo-eurosat", "geo-blocks")),
    }
    stale = []
    for path in DOCUMENTS:
        text = path.read_text("utf-8")
        if (new := renewed(text, made)) != text:
            stale.append(str(path))
            if not given.check:
                path.write_text(new, "utf-8")
    if given.check:
        sys.exit(f"differ from the runs: {', '.join(stale)}" if stale else 0)


if __name__ == "__main__":
    main()
