"""Runs to draw and to make a page of, and the page in a browser."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from made_up import in_study, on_earth
from playwright.sync_api import Browser, Page, sync_playwright

from lntrust import load_study
from lntrust.experiment import Run
from lntrust.experiment.store import Record, read_runs
from lntrust.learners.views import Views
from lntrust.report.page import write_page
from lntrust.report.rows import Row, rows_of

SMALL = """
inherits = "digits"
name = "small"
graph.nodes = 6
partition.labelled = 300
training = { stage1_rounds = 2, stage2_rounds = 4, refresh = 2 }
evaluation = { every = 2, checkpoint_every = 10 }
population.learners = [
  { name = "linear", kind = "linear", view = "pixels" },
  { name = "mlp", kind = "mlp", view = "pixels", options = { hidden = 16 } },
]
"""
RUNS = [("independent", []), ("uniform", []), ("d_psgd", []), ("lntrust", ["methods.lntrust.budget=50"]),
        ("lntrust", [])]  # fmt: skip


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory, views: Views) -> Path:
    """Two seeds of four methods, one of them at two settings: six nodes, two kinds of learners in turn."""
    folder = tmp_path_factory.mktemp("report")
    file = folder / "small.toml"
    file.write_text(SMALL, "utf-8")
    for method, sets in RUNS:
        for seed in (0, 1):
            Run(load_study(file, sets), method, seed, views, folder=folder / "runs")()
    return folder / "runs"


@pytest.fixture(scope="session")
def all_records(runs_folder: Path) -> list[Record]:
    return read_runs([runs_folder])


@pytest.fixture(scope="session")
def records(all_records: list[Record]) -> list[Record]:
    """For the page: without D-PSGD, and one seed of two methods once more, in a study on a map."""
    real = [r for r in all_records if r.method != "d_psgd"]
    moved = [r for r in real if r.seed == 0 and r.method in ("independent", "lntrust")]
    return [*real, *(in_study(on_earth(record), name="earth") for record in moved)]


@pytest.fixture
def rows(all_records: list[Record]) -> list[Row]:
    """For figures: Independent, D-PSGD, Uniform and LNTrust, two seeds each."""
    return rows_of([r for r in all_records if r.identity["settings"].get("budget") != 50])["small"]


@pytest.fixture(scope="session")
def report(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(records, path, "lntrust report runs -o report.html")
    return path


# -- the browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A module's own: while it is open, nothing else in this process can use asyncio."""
    script = Path(__file__).parents[1] / "find_chromium.sh"
    found = subprocess.run(["sh", script, "--look"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.fail(found.stderr.strip(), pytrace=False)
    with sync_playwright() as playwright:
        path = found.stdout.strip()
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


Opened = Callable[..., Page]


@pytest.fixture(scope="module")
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens a file in a window of its own, with all charts drawn unless they shall wait until they are seen.

    Whatever a page complains of or fetches fails, in the end.
    """
    pages: list[Page] = []
    troubles: list[str] = []

    def open_(
        path: Path, width: int = 1280, scheme: Literal["light", "dark"] = "light", draw: bool = True
    ) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(10_000)
        page, uri = context.new_page(), path.as_uri()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda each: troubles.extend([each.url] if each.url != uri else []))
        page.goto(uri)
        page.locator("html[data-ready]").wait_for(state="attached")
        if draw:
            page.evaluate("Charts.all()")
        pages.append(page)
        return page

    yield open_
    for page in pages:
        page.context.close()
    assert troubles == []


@pytest.fixture(scope="module")
def page(report: Path, opened: Opened) -> Page:
    """The module's report, for tests that leave it much as it was."""
    return opened(report)
