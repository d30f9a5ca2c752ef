"""The page in a real browser: it loads alone, tells the runs' numbers, and works for hands and keys."""

from pathlib import Path

import numpy as np
import pytest
from browsing import Opened, drawn, number, option, until
from made_up import changed, identified, in_world
from playwright.sync_api import Page

from lntrust.experiment.store import Record
from lntrust.report.page import write_page

LABELS = ["independent", "uniform", "lntrust, budget = 50", "lntrust, budget = 200"]


def runs_of(records: list[Record], label: str) -> list[Record]:
    """The runs of a row of the study `small`, by its label on the page."""
    name, _, budget = label.partition(", budget = ")
    of_method = [r for r in records if r.study == "small" and r.method == name]
    return [r for r in of_method if not budget or r.identity["settings"]["budget"] == int(budget)]


class TestLoading:
    def test_everything_is_drawn_and_nothing_is_fetched(self, report: Path, opened: Opened) -> None:
        page = opened(report)
        empty = "[...Charts.known.keys()].filter(box => !box.querySelector('svg, canvas')).length"
        assert page.evaluate(empty) == 0
        kinds = page.evaluate("[...document.querySelectorAll('[data-chart]')].map(b => b.dataset.chart)")
        assert set(kinds) == {"bytes", "per_gb", "curves", "scatter", "importance"}
        assert 1_000_000 < report.stat().st_size < 3_000_000

    def test_beside_runs_that_diverged(self, records: list[Record], opened: Opened, tmp_path: Path) -> None:
        """One row has lost a seed, another all of them; the charts are those of what is left."""
        lost = {("small", "uniform", 0), ("small", "uniform", 1), ("small", "independent", 1)}
        broken = [(r.study, r.method, r.seed) in lost for r in records]
        spoilt = [changed(r, diverged=3, test=None) if b else r for r, b in zip(records, broken, strict=True)]
        path = tmp_path / "diverged.html"
        write_page(spoilt, path, "lntrust report runs")
        page = opened(path)
        lines = page.locator("#s-small .results tbody tr")
        assert [line.get_attribute("data-label") for line in lines.all()] == LABELS
        charts = page.locator("#s-small [data-chart]").evaluate_all("all => all.map(e => e.dataset.chart)")
        assert {"bytes", "curves", "importance"} <= set(charts)
        series = option(page, "#s-small [data-chart=curves]")["series"]
        assert [each["name"] for each in series if each["data"]] == ["independent", *LABELS[2:]]

    def test_charts_wait_until_they_are_seen(self, report: Path, opened: Opened) -> None:
        page = opened(report, draw=False)
        before = drawn(page)
        page.locator("#map").scroll_into_view_if_needed()
        until(page, "Charts.known.get(document.getElementById('map')).chart !== null")
        assert before < drawn(page) < page.evaluate("Charts.known.size")
        # The contents say where one is.
        page.get_by_role("navigation").get_by_role("link", name="How it was made").click()
        until(page, "document.querySelector('nav [aria-current]')?.textContent === 'How it was made'")


class TestNumbers:
    def test_charts_hold_the_runs_rounds(self, page: Page, records: list[Record]) -> None:
        series = option(page, "#s-small [data-chart=curves]")["series"]
        [shown] = [each["data"] for each in series if each["name"] == "uniform"]
        both = zip(*(r.rounds.to_pylist() for r in runs_of(records, "uniform")), strict=True)
        wanted = [[a["round"], (a["test"] + b["test"]) / 2] for a, b in both if a["test"] is not None]
        np.testing.assert_allclose(shown, wanted, atol=6e-5)

    def test_bytes_can_be_counted_in_two_ways(self, page: Page) -> None:
        def values() -> list[float]:
            return [bar["value"] for bar in option(page, "#s-small [data-chart=per_gb]")["series"][0]["data"]]

        paper = values()
        page.locator("#s-small [data-kind=per_gb]").get_by_role("button", name="all bytes").click()
        every = values()
        assert len(every) == len(paper) == 2
        assert all(a < b for a, b in zip(sorted(every), sorted(paper), strict=True))


class TestNodes:
    def shown(self, page: Page, name: str) -> str:
        return page.locator(f"#node-tiles [data-tile='{name}']").inner_text()

    def test_click_shows_that_node(self, page: Page, records: list[Record]) -> None:
        page.locator("#run-choice").select_option("small · lntrust, budget = 200")
        page.locator("#seed-choice").select_option("1")
        [record] = [r for r in runs_of(records, "lntrust, budget = 200") if r.seed == 1]
        scores, report_ = record.summary["per_node"], record.summary["method_report"]
        assert scores["test"] != scores["self"]  # else the one could stand for the other below
        for i in range(6):
            page.locator(f"#graph [data-node='{i}'] path").click()
            learner = record.world["learners"][record.world["kinds"][i]]
            assert page.locator("#node-name").inner_text() == f"Node {i}: {learner}"
            assert page.locator("#node-choice").input_value() == str(i)
            for name, score in (("Test", "test"), ("Self", "self"), ("Test, pooled", "test_pooled"),
                                ("Self, pooled", "self_pooled")):  # fmt: skip
                assert self.shown(page, name) == number(scores[score][i])
            assert self.shown(page, "answers") == ("together" if report_["together"][i] else "alone")
            weights = {
                row.get_attribute("data-member"): row.locator("td.weight").inner_text()
                for row in page.locator("#node-members tbody tr").all()
            }
            assert weights == {j: number(weight) for j, weight in report_["trust"][i].items()}
            wide = {j for j, weight in report_["trust"][i].items() if j != str(i) and weight >= 0.005}
            assert {each.get_attribute("data-from") for each in page.locator("#graph .arrow").all()} == wide

    def test_features_and_classes(self, page: Page, records: list[Record]) -> None:
        page.locator("#run-choice").select_option("small · lntrust, budget = 200")
        page.locator("#seed-choice").select_option("0")
        page.locator("#node-choice").select_option("2")
        record = runs_of(records, "lntrust, budget = 200")[0]
        for row in record.tables["features"].to_pylist():
            if row["node"] == 2:
                cells = page.locator(f"#node-members [data-member='{row['member']}'] td").all_inner_texts()
                shown = [float(text.replace("−", "-")) for text in cells[3:]]
                np.testing.assert_allclose(shown, list(row.values())[2:], rtol=0.006, atol=6e-4)
        bars = [each["data"] for each in option(page, "#node-classes")["series"]]
        assert bars == [record.world["train"][2], record.world["validation"][2]]
        gate = [point["value"] for point in option(page, "#node-gate")["series"][0]["data"]]
        path = {(r["round"], r["lambda"]) for r in record.tables["trust"].to_pylist() if r["node"] == 2}
        np.testing.assert_allclose(gate, sorted(path), atol=6e-4)

    def test_whole_way_by_keyboard(self, report: Path, opened: Opened) -> None:
        page = opened(report)

        def focused() -> str:
            return str(page.evaluate("document.activeElement.id || document.activeElement.textContent"))

        def go_to(key: str, name: str) -> None:
            for _ in range(11):
                page.keyboard.press(key)
                if focused() == name:
                    return
            pytest.fail(f"no way to {name}")

        go_to("Tab", "Skip to the results")
        assert page.locator(".skip").bounding_box()["y"] >= 0  # type: ignore[index]
        page.keyboard.press("Enter")
        assert focused() == "main"
        go_to("Shift+Tab", "Whom the nodes trust")  # back into the contents
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#nodes"
        go_to("Tab", "node-choice")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"  # who uses keys must see where they are
        before = page.locator("#node-name").inner_text()
        page.keyboard.press("ArrowDown")
        assert page.locator("#node-name").inner_text() == "Node 1: mlp" != before
        assert page.locator("#graph .chosen").get_attribute("data-node") == "1"

    def test_legend_hides_a_method(self, page: Page) -> None:
        button = page.locator("#s-small [data-kind=curves] .legend").get_by_role("button", name="uniform")
        button.focus()
        page.keyboard.press("Enter")
        assert option(page, "#s-small [data-chart=curves]")["legend"][0]["selected"]["uniform"] is False
        # The button is a new one, and still has the focus.
        assert page.evaluate("document.activeElement.textContent") == "uniform"
        assert button.get_attribute("aria-pressed") == "false"


def test_map_has_every_tile(page: Page, records: list[Record]) -> None:
    series = option(page, "#map")["series"]
    [world] = [r.world for r in records if r.study == "earth" and r.method == "independent"]
    for place, name in enumerate(world["classes"]):
        [drawn] = [each["data"] for each in series if each.get("name") == name]
        tiles = zip(*(world["tiles"][key] for key in ("longitude", "latitude", "class")), strict=True)
        wanted = [[x / 100, y / 100] for x, y, of_class in tiles if of_class == place]
        assert sorted(drawn) == sorted(wanted)
    [lines] = [s for s in series if s["type"] == "lines"]
    assert len(lines["data"]) == len(world["edges"])
    at = "place => Charts.known.get(document.getElementById('map')).chart.convertToPixel('geo', place)"
    rome, stockholm = (page.evaluate(at, place) for place in ([12.5, 41.9], [18.07, 59.33]))
    assert stockholm[1] < rome[1]  # north is up
    assert stockholm[0] > rome[0]
    page.get_by_role("button", name="Zoom in").click()
    assert option(page, "#map")["geo"][0]["zoom"] == pytest.approx(1.6)


HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_names_are_text_wherever_they_come_from(
    records: list[Record], tmp_path: Path, opened: Opened
) -> None:
    hostile = []
    for record in records:
        study = {**record.identity["study"], "name": f"{record.study}{HOSTILE}"}
        named = {key: [f"{name}{HOSTILE}" for name in record.world[key]] for key in ("classes", "learners")}
        machine = {**record.identity["hardware"], "cpu": HOSTILE}
        hostile.append(in_world(identified(record, study=study, hardware=machine), **named))
    path = tmp_path / "hostile.html"
    write_page(hostile, path, f"lntrust report {HOSTILE}")
    page = opened(path)
    page.locator("#graph [data-node='1'] path").click()
    page.locator(".chart").evaluate_all(  # every chart shows a tooltip of the first point of each series
        """boxes => boxes.forEach(box => { const { chart } = Charts.known.get(box);
             chart.getOption().series.forEach((_, seriesIndex) =>
               chart.dispatchAction({ type: "showTip", seriesIndex, dataIndex: 0 })); })"""
    )
    assert page.title() == "lntrust report"
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("#node-name").inner_text()
    assert HOSTILE in page.locator("h2").nth(1).inner_text()
