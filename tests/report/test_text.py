"""Tables on the terminal, in Markdown, LaTeX and HTML, kept: whoever changes one shall see how it reads.

`LNTRUST_RECORD=1 pytest tests/report/test_text.py` writes the files in `texts` anew; see their diff.
"""

import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import changed, in_study, made, sending
from made_up import made_seeds as seeds
from rich.console import Console
from rich.table import Table

from lntrust import load_study
from lntrust.experiment.store import Record
from lntrust.report.claims import Verdict
from lntrust.report.page.tables import overview, section_table, section_words
from lntrust.report.rows import make_row
from lntrust.report.run_tables import results_table, trust_table
from lntrust.report.sections import Section
from lntrust.report.text import latex, markdown, terminal

FOLDER = Path(__file__).with_name("texts")
SENT = {"query": 40 * 10**9, "reply": 4 * 10**9, "framing": 4 * 10**8}
ALONE = seeds("independent", 0.7, 0.72)
OURS = seeds("lntrust", 0.8, 0.84, pooled=0.81, sent=SENT)
PEOPLE = seeds("independent", 0.7, pooled=0.4, study="wearables")
OTHERS = seeds("lntrust", [0.6, 0.8, 0.695, 0.8], own=0.7, own_pooled=0.6, pooled=0.5, study="wearables")
GONE: dict[str, Any] = {"test": None, "own": None, "diverged": 7}
VERDICTS = [
    Verdict("ours is best", "holds", "Ours − Independent: +.110 [+.100, +.120], t [+.010, +.210]"),
    Verdict(
        "and what we ask besides", "undecided", "Ours − Other: +.010 [-.100, +.120], one seed", ours=True
    ),
]


def section(rows: dict[str, list[Record]], alone: list[Record] = ALONE, **more: Any) -> Section:
    return Section("t-1", "A title", "digits", [make_row(*row, alone) for row in rows.items()], **more)


def of_the_paper() -> Section:
    paper = {"test": 0.865, "test_std": 0.017, "gain": 0.09}
    rows = [make_row("Independent", ALONE, ALONE), replace(make_row("Ours", OURS, ALONE), paper=paper)]
    return Section("t-1", "A title", "digits", rows, "Table 1", "Ours is *best*.", "Other seeds.",
                   verdicts=VERDICTS)  # fmt: skip


def selected() -> Section:
    """By its best round on test: that is told wherever the number stands."""
    paper = ["reading=paper"]
    alone, ours = seeds("independent", 0.7, sets=paper), seeds("lntrust", 0.8, best=0.9, sets=paper)
    return section({"alone": alone, "ours": ours}, alone)


def asking(label: str = "lntrust+lean", count: float = 1.25) -> Section:
    """A method that says how many neighbours it asks, one that asks nobody, and one of earlier days."""
    alone = [sending(record, asked_per_input=0.0) for record in ALONE]
    ours = [sending(record, asked_per_input=count) for record in seeds("lntrust+lean", 0.8, 0.84, sent=SENT)]
    return section({"independent": alone, "lntrust": OURS, label: ours}, alone)


def hubs() -> Section:
    """Leaves under noise: what is known of them and of hubs stands beside the rest, in 80 columns."""
    kinds = [{"name": name, "kind": "linear", "view": "pixels", **more}
             for name, more in (("hub", {"share": 0.25}), ("leaf", {"noise": 2.0}))]  # fmt: skip
    world = {"kinds": [0, 1, 1, 1], "edges": [[0, 1], [0, 2], [1, 2], [0, 3]]}
    trust: list[dict[str, float]] = [
        {},
        {"0": 0.6, "1": 0.4, "2": 0.0},
        {"0": 0.5, "1": 0.0, "2": 0.5},
        {"3": 0.9, "0": 0.1},
    ]

    def of(record: Record) -> Record:
        record = in_study(record, population={"assign": "by_degree", "learners": kinds})
        report = {"trust": trust} if record.method == "lntrust" else {}
        return replace(changed(record, method_report=report), world_text=json.dumps(world))

    alone, ours = ([of(record) for record in records] for records in (ALONE, OURS))
    return section({"Independent": alone, "LNTrust": ours}, alone, x="noise")


SECTIONS = {
    "hubs": hubs(),
    "plain": section({"independent": ALONE, "lntrust, top_k = 3": OURS}),
    "of-the-paper": of_the_paper(),
    "selected": selected(),
    # Nodes that are people are judged on their own tests; how many are below Independent is told on both.
    "people": section({"alone": PEOPLE, "ours": OTHERS}, PEOPLE),
    # A row with fewer seeds says so; equal to three digits is equally best; nothing may be known.
    "uneven": section({"alone": ALONE, "ours": OURS[:1], "a": seeds("lntrust", 0.9001),
                       "b": seeds("lntrust", 0.8999),
                       "nobody": [made(test=[None] * 4)]}),
    # Labels are text and nothing else.
    "escaped": section({"a|b *c* <d> [e] d_psgd _f_": OURS, "[bold]x": OURS,
                        r"50 % of_a & b #1 {x} $y ~ ^ \z → −1 ± λ ε Ω": OURS}, x="[b] budget B"),
    # One row lost a seed, another both; who hardly sends has a smaller unit than GB.
    "diverged": section({"independent": ALONE,
                         "uniform": [made("uniform", 0, 0.75), made("uniform", 1, **GONE)],
                         "dml": [made("dml", seed, **GONE) for seed in (0, 1)],
                         "fedmd": seeds("fedmd", 0.5, 0.6, sent={"reply": 40_000})}),
    "asking": asking(),
    "asking-by-a-longer-name": asking("a_name_that_is_longer"),
    "asking-nobody": asking(count=0.0),
}  # fmt: skip


def printed(table: Table, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text, "nothing is cut off"
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def as_before(name: str, *texts: str) -> None:
    file, now = FOLDER / f"{name}.txt", "\n".join(texts)
    if os.environ.get("LNTRUST_RECORD"):
        file.write_text(now, "utf-8")
    assert now == file.read_text("utf-8")


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section(name: str) -> None:
    """As Markdown, as LaTeX, on terminals down to one in which numbers have to fold, and on the page."""
    shown = SECTIONS[name]
    on_terminals = [printed(terminal(shown, width), width) for width in (100, 80, 70, 40)]
    page = in_lines(section_words(shown) + section_table(shown, 0))
    as_before(name, markdown(shown), latex(shown), *on_terminals, page)


def test_all_sections_at_a_glance() -> None:
    """LNTrust's own row is the one so called, or the first; claims are counted."""
    chosen = [replace(SECTIONS[name], name=name, title=name) for name in ("plain", "of-the-paper", "asking")]
    as_before("overview", in_lines(overview(chosen)))


def in_lines(html: str) -> str:
    return re.sub(r"(?=<(?:tr|t[dh]|li|svg|/tr)\b)", "\n", html) + "\n"


# -- the end of a run -----------------------------------------------------------------------------


def summary(
    method: str = "uniform", seed: int = 0, test: float | None = 0.8, **changes: Any
) -> dict[str, Any]:
    return {
        "study": "digits", "method": method, "deploy": None, "seed": seed, "test": test, "self": 0.7,
        "test_pooled": 0.75, "harmed": 0.25, "per_node": NOBODY, "variants": {},
        "bytes": {"total": 1_234_567, "per_deployed_query": 900.0}, "seconds": 1.26, **changes,
    }  # fmt: skip


NOBODY: dict[str, list[float]] = {"test": [], "test_pooled": []}


def scored(method: str, *nodes: list[float], **changes: Any) -> list[dict[str, Any]]:
    """A run for each list of the nodes' own tests; pooled, all of them are a little better."""
    return [summary(method, seed, float(np.mean(tests)),
                    per_node={"test": tests, "test_pooled": [x + 0.005 for x in tests]}, **changes)
            for seed, tests in enumerate(nodes)]  # fmt: skip


def broken(seed: int, number: int) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(("self", "test_pooled", "harmed"))
    sent = {"total": 0, "per_deployed_query": None}
    return summary("uniform", seed, None, bytes=sent, diverged=number, seconds=0.26) | nothing


def ends_of_runs() -> Iterator[list[dict[str, Any]]]:
    """Several seeds, the demo's methods on a line each, settings and variants, and runs that diverged."""
    yield [summary(), summary("dml", test_pooled=None, harmed=None)]
    tests = [0.8, 0.9, 0.7]
    yield [
        *(summary("uniform", k, tests[k], seconds=k, bytes={"total": 1000 * k, "per_deployed_query": 100})
          for k in (2, 0, 1)),
        *(summary("dml", k, 1.0, seconds=99.96) for k in (0, 1)),
    ]  # fmt: skip
    sent = {"independent": (0, 0), "uniform": (0, 1664), "lntrust": (358.9e6, 814),
            "lntrust+best": (45.6e6, 11)}  # fmt: skip
    yield [
        summary(method, seed, seconds=123.4, bytes={"total": total, "per_deployed_query": asked})
        for method, (total, asked) in sent.items()
        for seed in (0, 1, 2)
    ]
    swept = {"deploy": "trust", "a.skew": 2}
    yield [summary("dml"), summary("dml", test=0.9, deploy="trust", setting=swept)]
    scores = [{"test": test, "test_pooled": 0.9} for test in (0.85, 0.95)]
    yield [summary("centralized", k, variants={"label_prior": each}) for k, each in enumerate(scores)]
    # Independent among them: how many are below it, in a sweep under the same settings.
    alone, ours = scored("independent", [0.5, 0.6], [0.5, 0.6]), [[0.4, 0.7], [0.499, 0.599]]
    yield [*alone, *scored("lntrust+best", *ours), *scored("a_method_of_16_s", *ours[::-1])]
    of = {"setting": {"partition.skew": 2}}
    yield [*scored("independent", [0.5, 0.6], **of), *scored("uniform", [0.4, 0.7], **of),
           *scored("dml", [0.4, 0.7], setting={"partition.skew": 3})]  # fmt: skip
    yield [summary(test=0.6), broken(1, 7), summary(seed=2, test=0.8)]
    yield [broken(4, 7)]


def test_results() -> None:
    as_before("results", *(printed(results_table(runs)) for runs in ends_of_runs()))


def test_whom_each_node_trusts() -> None:
    """Largest first and nothing negligible; judged pooled or on own test sets, which a node may not have."""
    shown = []
    for pooled in ([0.6, 0.7], None):
        scores = {"test": [0.5, None], "self": [0.4, None], "test_pooled": pooled, "self_pooled": pooled}
        report = {"trust": [{"0": 0.25, "1": 0.75}, {"1": 1.0, "0": 0.001}], "together": [True, False]}
        of = {"method": "lntrust", "seed": 3, "method_report": report, "per_node": scores}
        shown.append(printed(trust_table(of, [0, 1], load_study("digits"))))
    as_before("trust", *shown)
