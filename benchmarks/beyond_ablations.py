"""Tables of what was tried on validation data, out of the committed files of beyond.py and its kin."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from reproduction import ROOT

FOLDER = ROOT / "benchmarks" / "results" / "beyond"
CHOICES, GATES, ASKING, FOLDS = (FOLDER / f"{name}.jsonl" for name in ("choices", "gates", "asking", "folds"))
NAMES = ("sparse-cifar10", "sparse-cifar100", "dense-cifar10", "geo-eurosat", "geo-blocks", "wearables")
LEVERS = (
    ("lntrust", "published"),
    ("k1", "`top_k = 1`"), ("k2", "`top_k = 2`"), ("k4", "`top_k = 4`"),
    ("recall5", "`recall = 5`"), ("recall20", "`recall = 20`"), ("recall50", "`recall = 50`"),
    ("uint8", "`reply = uint8`"), ("top1", "`reply = top1`"), ("top3", "`reply = top3`"),
    ("top8", "`reply = top8`"),
    ("F20", "`refresh = 20`"), ("F40", "`refresh = 40`"), ("sample100", "`sample = 100`"),
    ("thin4", "`top_k = 2`, `probe_others = 4`"),
    ("handle", "`query = handle`"), ("sure1", "`certainty = 1`"), ("sure.7", "`certainty = 0.7`"),
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


def harmed(summary: dict[str, Any]) -> float:
    """Share of nodes whose pooled score is lower deployed than with their own model.

    Choices were made by it, also where nodes are places or people.
    """
    deployed, own = (summary["per_node"][name] for name in ("test_pooled", "self_pooled"))
    return fmean(a < b for a, b in zip(deployed, own, strict=True) if a is not None)


def dot(number: float) -> str:
    return f"{number:.3f}".replace("0.", ".", 1)


def share(ours: float, theirs: float) -> str:
    return f"{100 * ours / theirs:.2f} %" if ours < 0.1 * theirs else f"{100 * ours / theirs:.0f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| :-- |" + " --: |" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; those that were written under older names of settings, under the newer ones."""
    before = {"head_start": "prior_wins", "usual_lead": "typical_margin"}
    lines = map(json.loads, path.read_text("utf-8").splitlines())
    rows = [{before.get(name, name): value for name, value in line.items()} for line in lines]
    for row in rows:
        if "settings" in row:
            row["settings"] = {before.get(name, name): value for name, value in row["settings"].items()}
    return rows


def chosen_by() -> dict[tuple[str, str], dict[str, Any]]:
    """The means on validation, by study and way."""
    return {(row["study"], row["way"]): row for row in rows_of(CHOICES)}


def titled(tables: dict[str, str]) -> str:
    """Tables one after another, each under its name."""
    return "\n".join(f"**{name}**\n\n{text}" for name, text in tables.items())


def choices(ways: Sequence[tuple[str, str]], names: Sequence[str]) -> str:
    """Ablations on validation, a table a study: each way's Test, and what it sends, beside the published."""
    kept, tables = chosen_by(), {}
    for study in names:
        full, rows = kept[study, "lntrust"], []
        for way, about in ways:
            row = kept[study, way]
            rows.append([
                about,
                f"{row['test']:.4f}".replace("0.", "."),
                f"{row['test_pooled'] - full['test_pooled']:+.4f}".replace("0.", "."),
                share(row["reply"], full["reply"]),
                share(row["total"], full["total"]),
                f"{row['asked']:.2f}",
            ])  # fmt: skip
        tables[study] = table(["", "Test", "Δ pooled", "replies", "all bytes", "asked"], rows)
    return titled(tables)


def harms(ways: Sequence[tuple[str, str]], names: Sequence[str]) -> str:
    """The same for safety, a table each for Test, Self and harmed."""
    kept, tables = chosen_by(), {}
    for what in ("test", "self", "harmed"):
        rows = [[about, *(dot(kept[study, way][what]) for study in names)] for way, about in ways]
        tables[what if what == "harmed" else what.title()] = table(["", *names], rows)
    return titled(tables)


def gates() -> str:
    """Gates and shares of the vote on the same models: those of `safe`, before its final rounds."""
    rows = rows_of(GATES)
    names = [study for study in NAMES if any(row["study"] == study for row in rows)]
    published = {row["study"]: row for row in rows if row["models"] == "lntrust"}
    found = {
        (row["study"], row["self_share"], row["prior_wins"], row["evidence"]): row
        for row in rows
        if row["models"] == "safe"
    }
    gained, harmed = [], [["published", "", "", *(dot(published[s]["harmed"]) for s in names)]]
    for share, head, evidence in SHOWN:
        setting = [f"{share:g}", f"{head:g}", f"{evidence:g}" if evidence else "no gate"]
        each = {study: found[study, share, head, evidence] for study in names}
        more = [each[study]["pooled"] - published[study]["pooled"] for study in names]
        gained.append([*setting, *(f"{number:+.3f}".replace("0.", ".") for number in more)])
        harmed.append([*setting, *(dot(each[study]["harmed"]) for study in names)])
    head_row = ["`self_share`", "`prior_wins`", "`evidence`", *names]
    return titled({"Δ pooled": table(head_row, gained), "harmed": table(head_row, harmed)})


def asking() -> str:
    """When to stop asking, on the same models: those of `lean`."""
    rows = rows_of(ASKING)
    found = {(row["study"], row["self_share"], row["typical_margin"], row["kappa"]): row for row in rows}
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


def folds() -> str:
    """Trust learned from all folds beside trust learned from one validation set."""
    rows = rows_of(FOLDS)
    found = {(row["fitted"], row["study"], row["preset"], row["folds"]): row for row in rows}
    out = []
    for (fitted, study, preset, K), many in found.items():
        if K == 1:
            continue
        one = found[fitted, study, preset, 1]
        score = [
            f"{dot(one[name])} → {dot(many[name])}" for name in ("test", "test_pooled", "together", "harmed")
        ]
        out.append([study, f"{fitted:g}", preset, *score, f"{many['sent'] / one['sent']:.1f} ×"])
    head = ("study", "fitted to", "preset", "Test", "pooled", "nodes that answer together", "harmed", "bytes")
    return table(head, out)
