"""The page's chart of accuracy against bytes, with presets of LNTrust on it, in a real browser."""

import re
from pathlib import Path

import numpy as np
import pytest
from browsing import Opened, option
from made_up import identified, sending, with_rounds
from playwright.sync_api import Page

from lntrust.experiment.reproduction import FigureSettings
from lntrust.experiment.store import Record
from lntrust.report.page import write_page
from lntrust.report.page.data import charts_of
from lntrust.report.rows import rows_of
from lntrust.report.sections import Section

CHART = "#s-small [data-chart=bytes]"
OURS = ["lntrust", "lntrust+lean", "lntrust+safe", "lntrust+best"]


def as_preset(record: Record, name: str, share: float) -> Record:
    """The same run under a preset's name, at a share of its bytes."""
    sent = record.summary["bytes"]
    less = {kind: int(share * count) for kind, count in sent.items() if isinstance(count, int)}
    headers = {kind: int(share * count) for kind, count in sent["framing_by_kind"].items()}
    rounds = [int(share * count) for count in record.rounds["bytes"].to_pylist()]
    renamed = identified(with_rounds(record, bytes=rounds), method=f"lntrust+{name}")
    return sending(renamed, **less, framing_by_kind=headers)


@pytest.fixture(scope="module")
def mixed(records: list[Record]) -> list[Record]:
    small = [r for r in records if r.study == "small" and r.identity["settings"].get("budget") != 50]
    ours = [r for r in small if r.method == "lntrust"]
    shares = {"lean": 0.01, "safe": 0.9, "best": 0.02}
    return [*small, *(as_preset(r, name, share) for r in ours for name, share in shares.items())]


@pytest.fixture(scope="module")
def report(mixed: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("presets") / "report.html"
    write_page(mixed, path, "lntrust report runs -o report.html")
    return path


def shown(page: Page) -> dict[str, list[list[float]]]:
    return {each["name"]: each["data"] for each in option(page, CHART)["series"]}


def test_everything_sent_and_all_but_queries(page: Page, mixed: list[Record]) -> None:
    every, [axis] = shown(page), option(page, CHART)["xAxis"]
    assert list(every) == ["independent", "uniform", *OURS]
    figure = page.locator("#s-small [data-kind=bytes]")
    figure.get_by_role("button", name="without queries").click()
    answers = shown(page)
    assert option(page, CHART)["xAxis"][0]["max"] == axis["max"]  # the same axis, so that one sees them move
    for method in OURS:
        sizes = [(r.summary["bytes"], r.summary["nodes"]) for r in mixed if r.method == method]
        total = np.mean([size["total"] / nodes for size, nodes in sizes])
        reply = np.mean([(size["reply"] + size["framing_by_kind"]["reply"]) / n for size, n in sizes])
        assert every[method][-1][0] == pytest.approx(total, rel=1e-3)
        [[sent, test]] = answers[method]
        assert sent == pytest.approx(reply, rel=1e-3)
        assert test == every[method][-1][1]
    for levels in (every, answers):  # who sends nothing lies flat
        assert len({height for _, height in levels["independent"]}) == 1
    figure.get_by_role("button", name="everything sent").click()
    assert shown(page) == every
    note = figure.locator(".note").inner_text()
    assert note.startswith("Higher is better, further left is cheaper")
    assert note.endswith("their course is not stored; with their headers.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_presets_have_colours_and_marks_of_their_own(report: Path, opened: Opened, scheme: str) -> None:
    page = opened(report, scheme=scheme)
    ours = [each for each in option(page, CHART)["series"] if each["name"] in OURS]
    assert len({each["symbol"] for each in ours}) == len({each["lineStyle"]["color"] for each in ours}) == 4
    assert {each["lineStyle"]["width"] for each in ours} == {2.6}
    swatches = page.locator("#s-small .swatch").evaluate_all("all => all.map(e => e.style.background)")
    assert len(set(swatches)) == 6


def test_a_plus_in_a_name_breaks_nothing(page: Page, mixed: list[Record]) -> None:
    labels = page.locator("#s-small .results tbody tr").evaluate_all("all => all.map(e => e.dataset.label)")
    assert labels == ["independent", "uniform", *OURS]
    page.locator("#s-small [data-kind=scatter] select").select_option(label="lntrust+lean")
    assert option(page, "#s-small [data-chart=scatter]")["yAxis"][0]["name"].startswith("lntrust+lean")
    page.locator("#run-choice").select_option("small · lntrust+best")
    assert page.locator("#node-name").inner_text().startswith("Node 0")
    legend = page.locator("#s-small [data-kind=bytes] .legend")
    legend.get_by_role("button", name="lntrust+lean").click()
    assert option(page, CHART)["legend"][0]["selected"] == {"lntrust+lean": False}
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert [each for each in ids if not re.fullmatch(r"[\w-]+", each)] == []
    main = page.evaluate("DATA.sections[0].rows.filter(row => row.main).map(row => row.label)")
    assert main == ["lntrust"]


@pytest.mark.parametrize(
    ("methods", "there"),
    [(["lntrust"], True), (["uniform", "lntrust"], True), (["independent", "uniform"], False)],
)
def test_shown_at_once_whenever_anybody_sends(mixed: list[Record], methods: list[str], there: bool) -> None:
    rows = rows_of([r for r in mixed if r.method in methods])["small"]
    for figures in ([], [FigureSettings(kind="curves")]):
        at_once, more = charts_of(Section("s", "s", "small", rows, figures=figures))
        assert ("bytes" in at_once) == there
        assert "bytes" not in more
    # Where a section is about something else, it is among the folded ones.
    asked = [FigureSettings(kind="importance")]
    at_once, more = charts_of(Section("s", "s", "small", rows, figures=asked))
    assert ("bytes" in at_once, "bytes" in more) == (False, there)


def test_one_that_was_never_evaluated_does_not_hide_the_others(
    mixed: list[Record], tmp_path: Path, opened: Opened
) -> None:
    def blind(record: Record) -> Record:
        scores = ("test", "self", "test_pooled", "self_pooled")
        return with_rounds(record, **{name: [None] * len(record.rounds) for name in scores})

    path = tmp_path / "report.html"
    write_page([blind(r) if r.method == "lntrust+safe" else r for r in mixed], path, "x")
    page = opened(path)
    assert list(shown(page)) == ["independent", "uniform", "lntrust", "lntrust+lean", "lntrust+best"]
    names = page.locator("#s-small [data-kind=bytes] .legend button").all_inner_texts()
    assert names == list(shown(page))
