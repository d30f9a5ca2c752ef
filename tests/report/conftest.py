"""Runs to make a page of, and the page in a browser."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from lntrust import load_study
from lntrust.experiment import Run
from lntrust.experiment.store import Record, read_runs, write_collection
from lntrust.learners.views import Views
from lntrust.report.page.write import write_page

sys.path.insert(0, str(Path(__file__).parent))  # for browsing.py and made_up.py

SMALL = """
inherits = "digits"
name = "small"
graph.nodes = 6
partition.labelled = 300
training = { stage1_rounds = 2, stage2_rounds = 4, refresh = 2 }
evaluation = { every = 2, checkpoint_every = 10 }

[[population.learners]]
name = "linear"
kind = "linear"
view = "pixels"

[[population.learners]]
name = "mlp"
kind = "mlp"
view = "pixels"
options = { hidden = 16 }
"""
RUNS = [("independent", []), ("uniform", []), ("lntrust", ["methods.lntrust.budget=50"]), ("lntrust", [])]
PLACES = [[48.86, 2.35], [52.52, 13.4], [41.9, 12.5], [40.42, -3.7], [59.33, 18.07], [51.5, -0.12]]


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory, views: Views) -> Path:
    """Two seeds of three methods, one of them at two settings."""
    folder = tmp_path_factory.mktemp("page")
    file = folder / "small.toml"
    file.write_text(SMALL, "utf-8")
    for method, sets in RUNS:
        for seed in (0, 1):
            Run(load_study(file, sets), method, seed, views, folder=folder / "runs")()
    return folder / "runs"


def on_earth(record: Record) -> Record:
    """The same run in a study of another name, whose nodes lie in six cities with 30 tiles around each."""
    tiles = [(i, round(100 * lat) + k % 6, round(100 * lon) + k // 6, (i + k) % 10)
             for i, (lat, lon) in enumerate(PLACES) for k in range(30)]  # fmt: skip
    node, latitude, longitude, of_class = zip(*tiles, strict=True)
    told = {"node": node, "latitude": latitude, "longitude": longitude, "class": of_class, "per_degree": 100}
    study = {**record.identity["study"], "name": "earth"}
    return replace(
        record,
        identity={**record.identity, "study": study},
        world_text=json.dumps({**record.world, "centres": PLACES, "tiles": told}),
    )


@pytest.fixture(scope="session")
def records(runs_folder: Path) -> list[Record]:
    """The runs, and one seed of two of them once more on a map."""
    real = read_runs([runs_folder])
    moved = [on_earth(r) for r in real if r.seed == 0 and r.method in ("independent", "lntrust")]
    return [*real, *moved]


@pytest.fixture(scope="session")
def collection(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collection") / "runs.parquet"
    write_collection(records, path)
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


@dataclass
class Seen:
    """A page in the browser, what it complained of, and what it asked for."""

    page: Page
    troubles: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


Opened = Callable[..., Seen]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens a file in a window of its own; whatever the page complains of fails the test."""
    seen: list[Seen] = []

    def open_(path: Path, width: int = 1280, scheme: Literal["light", "dark"] = "light") -> Seen:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(10_000)
        one = Seen(context.new_page())
        one.page.on("console", lambda message: one.troubles.append(message.text))
        one.page.on("pageerror", lambda error: one.troubles.append(str(error)))
        one.page.on("request", lambda request: one.requests.append(request.url))
        one.page.goto(path.as_uri())
        one.page.locator("html[data-ready]").wait_for(state="attached")
        seen.append(one)
        return one

    yield open_
    for one in seen:
        one.page.context.close()
        assert one.troubles == []
        assert len(set(one.requests)) == 1, one.requests  # the page itself, perhaps again


@pytest.fixture(scope="session")
def report(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_page(records, path, "lntrust report runs -o report.html")
    return path
