"""What ends a run, in the terminal: a line per method, and whom each node trusts."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich import box
from rich.table import Table

from lntrust.core.text import bytes_text, percent_text, score_text, seeds_text
from lntrust.experiment.metrics import judged_on_own_tests
from lntrust.experiment.store import Record
from lntrust.report.rows import Row, make_row, method_label, spread
from lntrust.report.text import (
    BELOW,
    NOTHING,
    Cell,
    below_on,
    marked,
    mean_of,
    spread_cell,
    spread_of,
    written,
)
from lntrust.study.settings import Study

_USUAL = 16  # letters that a method's name has at most
_TRUSTED = 4  # members per node


def results_table(summaries: Sequence[dict[str, Any]]) -> Table:
    """One row per method, and → how it is deployed where the study says so; in a sweep, one per setting."""
    by_label: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries:  # what tells a setting from the others has a line each: `skew=20`
        more = [f"  {path.rpartition('.')[2]}={value}" for path, value in _setting(summary).items()]
        label = "\n".join([method_label(summary["method"], summary["deploy"]), *more])
        by_label.setdefault(label, []).append(summary)
    rows = {label: _row(label, runs, summaries) for label, runs in by_label.items()}
    below = {title: below_on(score) for title, score in BELOW.items()
             if any(row.compared and row.below_independent_on(score) for row in rows.values())}  # fmt: skip
    seeds = sorted({summary["seed"] for summary in summaries})
    beside = "below Indep.: worse than under Independent of the same seed, pooled and on its own tests. "
    table = Table(
        title=f"{summaries[0]['study']}, {seeds_text(seeds)}",
        caption=f"Test: as deployed{', ± deviation over seeds' if len(seeds) > 1 else ''}. "
        "Self: each node's own model. Pooled: Test on the union of all test sets, weighted by each node's "
        "classes. Share of nodes: harmed, worse deployed than with their own model"
        f"{'; ' + beside if below else '. '}Bytes: sent in training by all nodes; per answer: by one "
        "deployed node.",
        box=box.SIMPLE_HEAD, show_edge=False, padding=(0, int(not below), 0, 0), pad_edge=False,
        caption_justify="left",
    )  # fmt: skip
    # A method is one line of 80 columns, so only Test has its ±. In a narrower terminal numbers wrap before
    # names of usual length do, and nothing is cut off.
    longest = max(map(len, "\n".join(by_label).splitlines()))
    table.add_column("method", overflow="fold", no_wrap=longest <= _USUAL)
    heads = [title.replace(" ", "\n") for title in below]
    for name in ("Test", "Self", "pooled", "harmed", *heads, "bytes", "per\nanswer", "time\n(s)"):
        table.add_column(name, justify="right", overflow="fold")
    for label, row in rows.items():
        name = "\n  ".join([label, *textwrap.wrap(row.what_diverged, _USUAL - 2)])
        fills = [spread_of("test"), mean_of("self", score_text), mean_of("test_pooled", score_text),
                 mean_of("harmed", percent_text)]  # fmt: skip
        shown = [marked(fill(row)) for fill in fills] + [below[title](row).value for title in below]
        sent = [_brief(row.sent), _brief(row.bytes_per_answer)] if row.records else [NOTHING, NOTHING]
        time = f"{row.seconds:.{1 if row.seconds < 99.95 else 0}f}"
        table.add_row(name, *shown, *sent, time)
        for variant in row.first.summary["variants"] if row.records else ():
            found = [record.summary["variants"][variant] for record in row.records]
            plain, pooled = (spread([each[score] for each in found]) for score in ("test", "test_pooled"))
            cells = spread_cell(plain, row), Cell(""), written(pooled, score_text)
            table.add_row(f"+ {variant}", *map(marked, cells), *[""] * (4 + len(below)))
    return table


def _setting(summary: dict[str, Any]) -> dict[str, Any]:
    """What a sweep set, but for how it deploys, which the label has."""
    return {path: value for path, value in summary.get("setting", {}).items() if path != "deploy"}


def _row(label: str, runs: Sequence[dict[str, Any]], among: Sequence[dict[str, Any]]) -> Row:
    """With Independent of the same seeds, and settings if it feels them: of all of its runs or none."""
    row = make_row(label, [_record(summary) for summary in runs], [])
    alone = [each for each in among if (each["method"], each["deploy"]) == ("independent", None)]
    partners = [
        next((each for each in alone if each["seed"] == summary["seed"] and each.get("diverged") is None
              and _setting(each).items() <= _setting(summary).items()), None)
        for summary in runs if summary.get("diverged") is None
    ]  # fmt: skip
    found = [_record(each) for each in partners if each is not None]
    return replace(row, independent=found if len(found) == len(partners) else [])


def _record(summary: dict[str, Any]) -> Record:
    identity = {name: summary[name] for name in ("method", "seed")}
    return Record(identity, summary, "{}", {})


def _brief(count: float) -> str:
    """Bytes in at most seven columns, up to terabytes."""
    number, unit = bytes_text(count, 1).split()
    return f"{float(number):.0f} {unit}" if len(number) > 3 else f"{number} {unit}"


def trust_table(summary: dict[str, Any], kinds: list[int], study: Study) -> Table:
    """One row per node: its model, whom it trusts how far, and what it answers with."""
    report, scores = summary["method_report"], summary["per_node"]
    names = [study.population.learners[k].name for k in kinds]
    own = scores["test_pooled"] is None or judged_on_own_tests(study.partition.by)
    of, judged = ("", "on the node's own test set") if own else ("_pooled", "pooled")
    table = Table(
        "node", "trusts", "answers",
        title=f"{summary['method']}, seed {summary['seed']}: whom each node trusts",
        caption=f"The {_TRUSTED} largest deployment weights α. A node answers alone where its deployment "
        f"gate is closed. Scores are {judged}.",
        caption_justify="left",
    )  # fmt: skip
    for name in ("Self", "Test"):
        table.add_column(name, justify="right")
    nodes = zip(report["trust"], report["together"], scores[f"self{of}"], scores[f"test{of}"], strict=True)
    for i, (trust, together, *known) in enumerate(nodes):
        largest = sorted(trust.items(), key=lambda item: -item[1])[:_TRUSTED]
        members = [
            f"{'itself' if int(j) == i else f'{j} ({names[int(j)]})'} {weight:.2f}"
            for j, weight in largest
            if weight >= 0.005
        ]
        both = [NOTHING if score is None else f"{score:.3f}" for score in known]
        table.add_row(f"{i} ({names[i]})", ", ".join(members), "together" if together else "alone", *both)
    return table
