"""Runs to draw: two seeds of four methods on six nodes."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from lntrust import load_study
from lntrust.experiment.run import Run
from lntrust.experiment.store import Record, read_runs
from lntrust.learners.views import Views
from lntrust.report.rows import Row, rows_of

sys.path.insert(0, str(Path(__file__).parent))  # for drawn.py

STUDY = """
inherits = "digits"
graph.nodes = 6
partition.labelled = 300
[training]
stage1_rounds = 2
stage2_rounds = 4
refresh = 2
[evaluation]
every = 2
checkpoint_every = 6
[methods.lntrust]
budget = 20
[[population.learners]]
name = "linear"
kind = "linear"
view = "pixels"
[[population.learners]]
name = "mlp"
kind = "mlp"
view = "pixels"
options = { hidden = 8 }
"""


METHODS = ("independent", "uniform", "d_psgd", "lntrust")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, views: Views) -> Path:
    """Two seeds of four methods: six nodes, linear heads and small networks in turn."""
    path = tmp_path_factory.mktemp("figures")
    (path / "small.toml").write_text(STUDY, "utf-8")
    study = load_study(path / "small.toml")
    for method in METHODS:
        for seed in (0, 1):
            Run(study, method, seed, views, folder=path / "runs")()
    return path / "runs"


@pytest.fixture(scope="session")
def records(folder: Path) -> list[Record]:
    return read_runs([folder])


@pytest.fixture
def rows(records: list[Record]) -> list[Row]:
    return rows_of(records)["small"]


@pytest.fixture
def placed(rows: list[Row]) -> list[Row]:
    """The same runs, somewhere in Europe."""
    centres = [[46.0, 10.0], [48.0, 2.0], [52.0, 13.0], [40.0, -3.0], [60.0, 25.0], [38.0, 23.0]]
    tiles = {
        "latitude": [int(100 * a) for a, _ in centres], "longitude": [int(100 * b) for _, b in centres],
        "class": [0, 1, 2, 3, 4, 9], "node": list(range(6)), "per_degree": 100,
    }  # fmt: skip

    def put(record: Record) -> Record:
        world = {**record.world, "centres": centres, "tiles": tiles}
        return dataclasses.replace(record, world_text=json.dumps(world))

    return [dataclasses.replace(row, records=[put(r) for r in row.records]) for row in rows]
