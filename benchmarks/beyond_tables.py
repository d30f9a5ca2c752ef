"""The tables of docs/lean.md and docs/safe.md and the presets' table in README, out of the committed runs.

    python benchmarks/beyond_tables.py --keep RUNS.parquet CHOICES.jsonl …   # of beyond.py, to be kept
    python benchmarks/beyond_tables.py --draw                                # write tables and figures anew
    python benchmarks/beyond_tables.py --check                               # say which documents differ

`runs.parquet` holds the runs on test, of all three readings; `choices.jsonl` the means over seeds of those on
validation; `gates.jsonl` (beyond_gate.py) and `asking.jsonl` (beyond_asking.py) what the last choice was made
by; `folds.jsonl` (beyond_folds.py) what folds would gain.
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

from lntrust.experiment.store import Record, read_runs, write_collection
from lntrust.report.nodes import On, difference, per_node
from lntrust.report.rows import rows_of

sys.path.insert(0, str(Path(__file__).parent))
from beyond_ablations import (
    CHOICES,
    FOLDER,
    GUARDS,
    LEVERS,
    NAMES,
    asking,
    choices,
    chosen_by,
    dot,
    folds,
    gates,
    harms,
    share,
    table,
)
from reproduction import MARK, ROOT

RUNS = FOLDER / "runs.parquet"
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "lean.md", ROOT / "docs" / "safe.md"]
# The presets were chosen three times, each time on validation data, and read on fresh seeds.
READINGS = {"first": ((0, 4), (5, 9)), "second": ((10, 14), (15, 19)), "third": ((20, 24), (25, 29))}
GROUPS = READINGS["third"]
SETS: tuple[On, On] = ("test_pooled", "test")  # the union of all test sets, and the nodes' own
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


def fallen(ours: Sequence[Record], alone: Sequence[Record], score: On = "test_pooled") -> tuple[int, int]:
    """How many nodes score lower than under Independent of the same seed; and by more than a point."""
    gaps = [per_node(a, score) - per_node(b, score) for a, b in zip(ours, alone, strict=True)]
    return sum(int((gap < 0).sum()) for gap in gaps), sum(int((gap < -0.01).sum()) for gap in gaps)


def hurt(records: Sequence[Record], score: On) -> int:
    """How many nodes score lower deployed than with their own model."""
    own = score.replace("test", "self")
    return sum(int((per_node(r, score) < per_node(r, own)).sum()) for r in records)


def nodes(records: Sequence[Record]) -> int:
    return sum(record.summary["nodes"] for record in records)


# -- tables ---------------------------------------------------------------------------------------


def below(runs: Runs, *names: str) -> str:
    """Nodes below Independent, in brackets by more than a point: pooled, and on their own test sets."""
    group = (GROUPS[0][0], GROUPS[-1][1])
    rows, total = [], np.zeros((2 * len(names), 2), dtype=int)
    for study in NAMES:
        alone = of(runs, study, "independent", group)
        each = np.array([fallen(of(runs, study, name, group), alone, score)
                         for score in SETS for name in names])  # fmt: skip
        total += each
        rows.append([study, f"{nodes(alone):,}", *(f"{all_} ({far})" for all_, far in each)])
    every = sum(nodes(of(runs, study, "independent", group)) for study in NAMES)
    rows.append(["all", f"{every:,}", *(f"{all_} ({far})" for all_, far in total)])
    called = ["LNTrust" if name == "lntrust" else name.partition("+")[2] for name in names]
    return table(
        ["study", "nodes", *(f"{name}, {on}" for on in ("pooled", "own tests") for name in called)], rows
    )


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
            counts = [[hurt(each, on) for each in (full, ours)] for on in SETS]
            counts += [[fallen(each, alone, on)[0] for each in (full, ours)] for on in SETS]
            rows.append(
                [
                    study, f"{group[0]}–{group[1]}", test(alone), test(full), test(ours),
                    against(ours, alone), against(ours, full),
                    *(" → ".join(dot(count / nodes(alone)) for count in pair) for pair in counts),
                    share(mean(ours, total), mean(full, total)),
                ]
            )  # fmt: skip
    head = ("study", "seeds", "Independent", "LNTrust", preset, f"{preset} − Independent",
            f"{preset} − LNTrust", "harmed, pooled, LNTrust → ours", "harmed, own tests",
            "below Independent, pooled", "below Independent, own tests", "bytes")  # fmt: skip
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

    def harm(method: str, groups: Sequence[tuple[int, int]], own: Sequence[str] = ()) -> str:
        rows = [
            [hurt(of(runs, study, name, g), "test" if study in own else "test_pooled")
             for name in ("lntrust", method)]
            for study in NAMES for g in groups
        ]  # fmt: skip
        halved, (before, after) = sum(2 * b <= a for a, b in rows), map(sum, zip(*rows, strict=True))
        return f"{halved} of {len(rows)}; nodes {before} → {after}"

    def fell(method: str, groups: Sequence[tuple[int, int]]) -> str:
        both = [np.sum([fallen(of(runs, study, name, g), of(runs, study, "independent", g))
                        for study in NAMES for g in groups], axis=0)
                for name in ("lntrust", method)]  # fmt: skip
        return " → ".join(f"{all_} ({far})" for all_, far in both)

    geo, others = NAMES[3:5], (*NAMES[:3], *NAMES[5:])
    made: list[tuple[str, Callable[[Sequence[tuple[int, int]]], str]]] = [
        ("lean: replies, of LNTrust's ≤ 1 %", lambda g: most(replies, g)),
        ("lean: Test − LNTrust ≥ −.003", lambda g: gaps("lntrust+lean", "lntrust", NAMES[:3], g)),
        ("lean: deployed questions ≤ ⅓", lambda g: most(lambda s: s["bytes"]["asked_per_input"], g)),
        ("safe: geo, Test − Independent ≥ 0", lambda g: gaps("lntrust+safe", "independent", geo, g)),
        ("safe: others, Test − LNTrust ≥ −.002", lambda g: gaps("lntrust+safe", "lntrust", others, g)),
        ("safe: rows where harmed is at most half", lambda g: harm("lntrust+safe", g)),
        ("safe: the same, places and people by own tests", lambda g: harm("lntrust+safe", g, NAMES[3:])),
        ("safe: nodes below Independent (by > .01)", lambda g: fell("lntrust+safe", g)),
        ("best: geo, Test − Independent", lambda g: gaps("lntrust+best", "independent", geo, g)),
        ("best: others, Test − LNTrust", lambda g: gaps("lntrust+best", "lntrust", others, g)),
        ("best: rows where harmed is at most half", lambda g: harm("lntrust+best", g)),
        ("best: the same, places and people by own tests", lambda g: harm("lntrust+best", g, NAMES[3:])),
        ("best: nodes below Independent (by > .01)", lambda g: fell("lntrust+best", g)),
    ]
    head = ["target; worst row", *(f"{name}, seeds {g[0][0]}–{g[-1][1]}" for name, g in READINGS.items())]
    return table(head, [[about, *(value(g) for g in READINGS.values())] for about, value in made])


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
    from lntrust.report import figures

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
        title = f"{study}, seeds {first}–{last}; baselines 0–2"
        figure = figures.draw("bytes", rows, title=title)
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
        "beyond-below": below(runs, "lntrust", "lntrust+safe", "lntrust+best"),
        "beyond-below-lean": below(runs, "lntrust", "lntrust+lean"),
        "beyond-levers": choices(LEVERS, NAMES[:3]),
        "beyond-gates": gates(),
        "beyond-asking": asking(),
        "beyond-guards": harms(GUARDS, NAMES[:5]),
        "beyond-folds": folds(),
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
