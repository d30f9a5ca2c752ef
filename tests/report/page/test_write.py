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

from lntrust import LNTrustError, load_study
from lntrust.experiment.reproduction import Claim, Panel, Reproduction, RowSettings
from lntrust.experiment.statistics import Interval
from lntrust.experiment.store import Record, identity
from lntrust.methods import find_method
from lntrust.report.figures.coast import coastlines, land
from lntrust.report.page import write as page_module
from lntrust.report.page.html import Html, Scale, gigabytes, h, interval_bar, number, scale_bar, with_minus
from lntrust.report.page.nodes import graphs
from lntrust.report.page.study import run_command
from lntrust.report.page.tables import main_rows, overview, section_table, section_words
from lntrust.report.page.write import page, write_page
from lntrust.report.rows import make_row
from lntrust.report.sections import sections_of


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

    @pytest.mark.parametrize(
        ("value", "text"), [(0.5, ".500"), (-0.0125, "−.013"), (1.5, "1.500"), (None, "–")]
    )
    def test_numbers(self, value: float | None, text: str) -> None:
        assert number(value) == text

    @pytest.mark.parametrize(("value", "text"), [(0.044, "+.044"), (-0.044, "−.044"), (-0.0, "−.000")])
    def test_signs(self, value: float, text: str) -> None:
        assert number(value, sign=True) == text

    def test_minus_in_words(self) -> None:
        words = "CIFAR-10, a − b: -.032 [-.050, +.011] (5e-4)"
        assert with_minus(words) == "CIFAR-10, a − b: −.032 [−.050, +.011] (5e-4)"

    def test_intervals_share_a_scale(self) -> None:
        scale = Scale.of([Interval(0.04, 0.02, 0.06), Interval(-0.01, -0.02, 0.0)])
        assert scale == (-0.02, 0.06)
        assert scale.at(-0.02) < scale.at(0) < scale.at(0.06) <= 70
        assert scale.at(9) == scale.at(0.06)
        assert Scale.of([]).at(0) == 35
        assert re.findall(r">([^<]+)</text>", scale_bar(scale)) == ["0", "+.06"]  # −.02 is too near to zero
        assert "up" in interval_bar(Interval(0.04, 0.02, 0.06), scale)

    @pytest.mark.parametrize(
        ("value", "text"), [(0, "0"), (1.5, "1.500"), (0.044, ".044"), (0.00002, "20.0 kB")]
    )
    def test_gigabytes(self, value: float, text: str) -> None:
        assert gigabytes(value) == text


class TestPage:
    def test_is_whole_and_balanced(self, records: list[Record]) -> None:
        text = page(records, "lntrust report")
        parser = Balanced()
        parser.feed(re.sub(r"<script.*?</script>", "", text, flags=re.S).removeprefix("<!doctype html>"))
        assert parser.open == []
        assert "{{" not in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)
        assert "http" not in re.sub(r"<script.*?</script>", "", text, flags=re.S).replace("http-equiv", "")

    def test_says_how_it_was_made(self, records: list[Record]) -> None:
        text = page(records, "lntrust report a b -o c.html")
        assert "lntrust report a b -o c.html" in text
        for word in ("Machines and versions", records[0].identity["versions"]["torch"], '"skew": 10.0'):
            assert word in text

    def test_same_runs_same_page(self, records: list[Record]) -> None:
        assert page(records, "x") == page(records, "x")

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
        self, records: list[Record], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = page(records, "x")
        runs = data_of(whole)["graphs"]["runs"]
        assert len(runs) == 6
        left, smaller = runs, whole
        for limit in range(len(whole.encode()) + 10_000, len(whole.encode()) - 10_000, -1000):
            monkeypatch.setattr(page_module, "LIMIT", limit)
            smaller = page(records, "x")
            left = data_of(smaller)["graphs"]["runs"]
            assert len(smaller.encode()) < limit
            if len(left) < len(runs):
                break
        assert 0 < len(left) < len(runs)
        assert f"{len(runs) - len(left)} more runs of LNTrust" in smaller
        assert {run["seed"] for run in left if run["study"] == "small"} >= {0}

    def test_links_are_one_to_a_section(self, records: list[Record]) -> None:
        def renamed(record: Record, name: str) -> Record:
            study = {**record.identity["study"], "name": name}
            return replace(record, identity={**record.identity, "study": study})

        text = page([renamed(records[0], name) for name in ("a.b", "a b", "a-b")], "x")
        links = re.findall(r'<section id="(s-[^"]+)"', text)
        assert len(set(links)) == len(links) == 3
        for link in links:
            assert f'href="#{link}"' in text

    def test_only_html(self, records: list[Record], tmp_path: Path) -> None:
        with pytest.raises(LNTrustError, match=r"must end in \.html"):
            write_page(records, tmp_path / "page.htm", "x")


class TestPaper:
    """A table of the paper, made up for these runs."""

    @pytest.fixture
    def reproduction(self, tmp_path: Path, runs_folder: Path) -> Reproduction:
        study = str(runs_folder.parent / "small.toml")
        rows = [
            RowSettings(label="Alone", method="independent", x=None, paper={"test": 0.1, "test_std": 0.0}),
            RowSettings(label="B = 50", x=50, set={"methods.lntrust.budget": 50}),
            RowSettings(label="B = 200", x=200, paper={"test": 0.5, "test_std": 0.4, "self": 0.4}),
        ]
        claims = [
            Claim(says="nothing is better than nothing", above="Alone", below=["B = 50"]),
            Claim(says="all alike", alike=["B = 50", "B = 200"], within=0.9),
        ]
        panel = Panel(title="panel", study=study, x="budget B", rows=rows, claims=claims)
        return Reproduction(
            name="made-up", title="Made up", place="Table 0", claim="It is so.", differences="Nothing else.",
            panels=[panel],
        )  # fmt: skip

    def test_words_and_numbers(self, records: list[Record], reproduction: Reproduction) -> None:
        here = [r for r in records if r.study == "small"]
        section = sections_of(here, [reproduction])[0]
        words = re.sub(r"<[^>]+>", " ", section_words(section))
        assert "It is so." in words
        assert "Nothing else." in words
        assert {v.outcome for v in section.verdicts} & {"holds", "does not hold", "undecided"}
        for verdict in section.verdicts:
            assert verdict.outcome in words
            assert verdict.says in words
            assert with_minus(verdict.words) in words
        table = section_table(section, 0)
        assert "higher by" in table  # than the paper's .1
        assert "agrees" in table
        assert ">.100<" in table
        main = main_rows([section])
        assert main[section.name].label == "B = 200"  # as the study has it, though not the first
        glance = overview([section], main)
        assert "Table 0" in glance
        assert "B = 200" in glance

    def test_charts_of_an_ablation(
        self, records: list[Record], reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = [r for r in records if r.study == "small"]
        monkeypatch.setattr(page_module, "sections_of", lambda r: sections_of(r, [reproduction]))
        data = data_of(page(here, "x"))
        section = data["sections"][0]
        assert section["x"] == "budget B"
        assert [row["x"] for row in section["rows"]] == [None, 50, 200]
        assert section["rows"][2]["paper"] == {"test": 0.5, "test_std": 0.4, "self": 0.4}
        ours = data["rows"][section["rows"][2]["key"]]
        runs = [r for r in here if r.method == "lntrust" and r.identity["settings"]["budget"] == 200]
        assert ours["test"][0] == pytest.approx(np.mean([r.summary["test"] for r in runs]), abs=6e-5)


class TestCommands:
    def test_a_command_makes_the_same_run_again(self, records: list[Record]) -> None:
        """Of a shipped study, with every kind of change."""
        sets = [
            "graph.nodes=8",
            "methods.lntrust.budget=50",
            "deploy=uniform",
            "methods.lntrust.unlabelled=false",
        ]
        study = load_study("digits", sets)
        of = identity(study, "lntrust", find_method("lntrust", study), 3, "cpu")
        record = replace(records[0], identity={**of, "versions": {}, "hardware": {}})
        words = shlex.split(run_command(make_row("x", [record], [])))
        assert words[:3] == ["lntrust", "run", "digits"]
        told = {name: [b for a, b in itertools.pairwise(words) if a == name] for name in words}
        again = load_study("digits", told["--set"])
        assert identity(again, told["--method"][0], find_method("lntrust", again), 3, "cpu") == of
        assert told["--seed"] == ["3"]

    def test_of_other_data_it_is_the_same(self, records: list[Record]) -> None:
        """Which data bear the name is no setting: whoever gives the command has them."""
        study = load_study("digits")
        of = identity(study, "independent", find_method("independent", study), 0, "cpu")
        other = {**of["study"], "data": {**of["study"]["data"], "content": "0123456789abcdef"}}
        record = replace(records[0], identity={**of, "study": other, "versions": {}, "hardware": {}})
        assert run_command(make_row("x", [record], [])) == (
            "lntrust run digits --method independent --seed 0 --device cpu"
        )

    def test_of_a_preset(self, records: list[Record]) -> None:
        study = load_study("digits", ["methods.lntrust.budget=50", "methods.lntrust+lean.sample=9"])
        of = identity(study, "lntrust+lean", find_method("lntrust+lean", study), 0, "cpu")
        record = replace(records[0], identity={**of, "versions": {}, "hardware": {}})
        words = shlex.split(run_command(make_row("lntrust+lean", [record], [])))
        told = {name: [b for a, b in itertools.pairwise(words) if a == name] for name in words}
        assert told["--method"] == ["lntrust+lean"]
        again = load_study("digits", told["--set"])
        assert identity(again, "lntrust+lean", find_method("lntrust+lean", again), 0, "cpu") == of

    def test_a_study_of_ones_own_is_a_file(self, records: list[Record]) -> None:
        assert run_command(make_row("x", [records[0]], [])).startswith("lntrust run small.toml --method ")


def test_graphs_hold_what_the_runs_hold(records: list[Record]) -> None:
    sections = sections_of(records)
    found, left_out = graphs(sections, main_rows(sections), 10**9)
    assert left_out == 0
    assert len(found["runs"]) == 6
    run = next(
        run for run in found["runs"] if run["name"] == "small · lntrust, budget = 200" and run["seed"] == 1
    )
    [record] = [r for r in records if r.study == "small" and r.method == "lntrust" and r.seed == 1
                and r.identity["settings"]["budget"] == 200]  # fmt: skip
    for i, members in enumerate(run["members"]):
        trust = record.summary["method_report"]["trust"][i]
        assert {str(j): weight for j, weight, *_ in members} == {j: round(w, 3) for j, w in trust.items()}
    world = found["worlds"][run["world"]]
    assert world["edges"] == record.world["edges"]
    assert np.array(world["places"]).min() == 0
    assert np.array(world["places"]).max() == 1000


class TestCoast:
    def test_lines_lie_in_the_window(self) -> None:
        lines = coastlines(-10, 50, 2, 59)  # Britain
        assert len(lines) > 5
        places = np.concatenate(lines)
        assert (np.abs(places - [-4, 54.5]) <= [7, 5.5]).all()  # with a step beyond the edge

    def test_steps_are_short(self) -> None:
        """Nothing runs across the map where the world was cut open."""
        longest = max(np.abs(np.diff(line, axis=0)).max() for line in coastlines(-180, -90, 180, 90))
        assert longest < 8

    @pytest.mark.parametrize(
        ("longitude", "latitude", "is_land"),
        [(2.35, 48.86, True), (-30, 45, False), (37.6, 55.75, True), (18, 40, False), (0, -85, True),
         (178, 67, True), (-178, 66.5, True), (51, 42, False)],
    )  # fmt: skip
    def test_land(self, longitude: float, latitude: float, is_land: bool) -> None:
        """Paris, the Atlantic, Moscow, the Ionian Sea, Antarctica, both sides of 180°, the Caspian Sea."""
        rings = land(longitude - 3, latitude - 3, longitude + 3, latitude + 3)
        inside = sum(_around(ring, longitude, latitude) for ring in rings)
        assert inside % 2 == is_land


def _around(ring: np.ndarray[Any, Any], x: float, y: float) -> bool:
    """Whether a ring has a point inside: a ray to the east crosses it an odd number of times."""
    (x0, y0), (x1, y1) = ring[:-1].T, ring[1:].T
    crosses = (y0 > y) != (y1 > y)
    at = x0 + (y - y0) / np.where(y1 == y0, 1, y1 - y0) * (x1 - x0)
    return bool(np.sum(crosses & (at > x)) % 2)
