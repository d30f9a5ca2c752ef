"""What goes into the page, without a browser: data, words, commands, limits, and what is missing."""

import base64
import itertools
import json
import re
import shlex
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import changed, identified, in_study

from lntrust import load_study
from lntrust.experiment.reproduction import Claim, FigureSettings, Panel, Reproduction, RowSettings
from lntrust.experiment.store import Record, identities
from lntrust.report.page.html import Html, h, with_minus
from lntrust.report.page.tables import section_table
from lntrust.report.page.write import page, run_command
from lntrust.report.rows import make_row
from lntrust.report.sections import sections_of
from lntrust.study.settings import Study


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    packed = re.search(r'<script type="text/plain" id="packed">([^<]*)</script>', text)
    assert found
    assert packed
    return {**json.loads(found[1]), **json.loads(zlib.decompress(base64.b64decode(packed[1])))}


class Balanced(HTMLParser):
    """Fails where an element is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


class TestHtml:
    def test_text_is_escaped_and_markup_is_not(self) -> None:
        made = h("p", "a < b & c", h("b", "x"), class_="y", data_z='"', hidden=None)
        assert made == '<p class="y" data-z="&quot;">a &lt; b &amp; c<b>x</b></p>'
        assert isinstance(made, Html)

    def test_numbers(self) -> None:
        words = "CIFAR-10, a − b: -.032 [-.050, +.011] (5e-4)"
        assert with_minus(words) == "CIFAR-10, a − b: −.032 [−.050, +.011] (5e-4)"


class TestPage:
    def test_is_whole_and_says_how_it_was_made(self, report: Path, records: list[Record]) -> None:
        text = report.read_text("utf-8")
        assert text == page(records, "lntrust report runs -o report.html")  # same runs, same page
        words = re.sub(r"<script.*?</script>", "", text, flags=re.S)
        parser = Balanced()
        parser.feed(words.removeprefix("<!doctype html>"))
        assert parser.open == []
        assert "{{" not in re.sub(r"<style.*?</style>", "", words, flags=re.S)
        assert "http" not in words.replace("http-equiv", "")
        versions = records[0].identity["versions"]["torch"]
        for word in ("lntrust report runs -o report.html", "Machines and versions", versions, '"skew": 10.0'):
            assert word in text

    def test_without_lntrust_there_are_no_nodes(self, records: list[Record]) -> None:
        few = [r for r in records if r.study == "small" and r.method == "uniform" and r.seed == 0]
        text = page(few, "x")
        assert 'id="nodes"' not in text
        assert 'id="maps"' not in text
        assert data_of(text)["graphs"]["runs"] == []
        table = section_table(sections_of(few)[0], 0)
        assert "±" not in re.sub(r"<caption>.*?</caption>", "", table)  # one seed
        assert "against Independent" not in table

    def test_single_nodes_are_left_out_before_the_page_grows_too_large(
        self, report: Path, records: list[Record]
    ) -> None:
        whole = report.read_text("utf-8")
        runs = data_of(whole)["graphs"]["runs"]
        assert len(runs) == 6
        left, smaller = runs, whole
        for limit in range(len(whole.encode()) + 10_000, len(whole.encode()) - 10_000, -1000):
            smaller = page(records, "x", limit=limit)
            left = data_of(smaller)["graphs"]["runs"]
            assert len(smaller.encode()) < limit
            if len(left) < len(runs):
                break
        assert 0 < len(left) < len(runs)
        assert f"{len(runs) - len(left)} more runs of LNTrust" in smaller
        assert {run["seed"] for run in left if run["study"] == "small"} >= {0}

    def test_links_are_one_to_a_section(self, records: list[Record]) -> None:
        text = page([in_study(records[0], name=name) for name in ("a.b", "a b", "a-b")], "x")
        links = re.findall(r'<section id="(s-[^"]+)"', text)
        assert len(set(links)) == len(links) == 3
        for link in links:
            assert f'href="#{link}"' in text


class TestPaper:
    """A table of the paper, made up for these runs."""

    def reproduction(self, runs_folder: Path) -> Reproduction:
        rows = [
            RowSettings(label="Alone", method="independent", paper={"test": 0.1, "gain": 0.0}),
            RowSettings(label="B = 50", x=50, set={"methods.lntrust.budget": 50}),
            RowSettings(label="B = 200", x=200, paper={"test": 0.5, "test_std": 0.4, "self": 0.4}),
        ]
        claims = [
            Claim(says="nothing is better than nothing", above="Alone", below=["B = 50"]),
            Claim(says="all alike", alike=["B = 50", "B = 200"], within=0.9),
        ]
        study = str(runs_folder.parent / "small.toml")
        panel = Panel(title="panel", study=study, x="budget B", rows=rows, claims=claims)
        figures = [FigureSettings(kind="trust", node=2), FigureSettings(kind="topology", seed=1),
                   FigureSettings(kind="map")]  # fmt: skip
        return Reproduction(
            name="made-up", title="Made up", place="Table 0", claim="It is so.", differences="Nothing else.",
            panels=[panel], figures=figures,
        )  # fmt: skip

    def test_page(self, records: list[Record], runs_folder: Path) -> None:
        here = [r for r in records if r.study == "small"]
        text = page(here, "x", [self.reproduction(runs_folder)])
        data = data_of(text)
        section = data["sections"][0]
        assert section["x"] == "budget B"
        assert [row["x"] for row in section["rows"]] == [None, 50, 200]
        assert section["rows"][2]["paper"] == {"test": 0.5, "test_std": 0.4, "self": 0.4}
        ours = data["rows"][section["rows"][2]["key"]]
        runs = [r for r in here if r.method == "lntrust" and r.identity["settings"]["budget"] == 200]
        assert ours["test"][0] == pytest.approx(np.mean([r.summary["test"] for r in runs]), abs=6e-5)
        assert "Of the paper's 2 claims held against these runs:" in text
        assert [row["label"] for row in section["rows"] if row["main"]] == ["B = 200"], "as the study has it"
        assert text.count(": the runs of <a") == 1  # Independent, which stands in two sections
        for link in ("See node 2 among its neighbours →", "See this graph →", "See the map →"):
            assert link in text

    def test_importance_that_only_a_later_seed_reports(self, records: list[Record]) -> None:
        small = [r for r in records if r.study == "small"]
        first, other = (r for r in small if r.identity["settings"].get("budget") == 50)
        [row] = data_of(page([changed(first, method_report={}), other], "x"))["rows"].values()
        report = other.summary["method_report"]
        wanted = {name: [mean, report["importance_std"][name]] for name, mean in report["importance"].items()}
        assert row["importance"] == {name: pytest.approx(pair, rel=1e-3) for name, pair in wanted.items()}


class TestCommands:
    """`lntrust run …`, given again, makes the same runs."""

    def identity_of(self, study: Study, method: str = "independent") -> dict[str, Any]:
        (of,) = identities(study, method, [3], "cpu")
        return of

    @pytest.mark.parametrize(
        ("method", "sets"),
        [
            ("lntrust", ["graph.nodes=8", "methods.lntrust.budget=50", "deploy=uniform",
                         "methods.lntrust.unlabelled=false", "methods.lntrust.top_k=3"]),
            ("lntrust", ["reading=paper"]),
            ("lntrust", ["reading=paper", "partition.size_seed=none", "training.stage2_rounds=200"]),
            ("independent", ["partition.pool_draws=overlapping", "partition.split=per_class_nearest"]),
            ("lntrust+lean", ["methods.lntrust.budget=50", "methods.lntrust+lean.sample=9"]),
        ],
    )  # fmt: skip
    def test_of_a_shipped_study(self, records: list[Record], method: str, sets: list[str]) -> None:
        of = self.identity_of(load_study("digits", sets), method)
        record = replace(records[0], identity={**of, "versions": {}, "hardware": {}})
        words = shlex.split(run_command(make_row("x", [record], [])))
        assert words[:3] == ["lntrust", "run", "digits"]
        given = {name: [b for a, b in itertools.pairwise(words) if a == name] for name in words}
        assert (given["--method"], given["--seed"]) == ([method], ["3"])
        assert self.identity_of(load_study("digits", given["--set"]), method) == of

    def test_of_other_data_it_is_the_same(self, records: list[Record]) -> None:
        """Which data bear the name is no setting: whoever gives the command has them."""
        of = self.identity_of(load_study("digits"))
        other = {**of["study"], "data": {**of["study"]["data"], "content": "0123456789abcdef"}}
        record = identified(records[0], **{**of, "study": other})
        assert run_command(make_row("x", [record], [])) == (
            "lntrust run digits --method independent --seed 3 --device cpu"
        )

    def test_what_the_command_line_cannot_say_is_a_file(self, records: list[Record]) -> None:
        """A study of one's own, or with learners of one's own; a method that is not there any more."""
        study = load_study("digits", ['population.learners=[{name="m",kind="linear",view="pixels"}]'])
        of = self.identity_of(study)
        gone = in_study(identified(records[0], method="gone"), name="digits")
        cases = [(records[0], "small"), (identified(records[0], **of), "digits"), (gone, "digits")]
        for record, name in cases:
            assert run_command(make_row("x", [record], [])).startswith(f"lntrust run {name}.toml --method ")
