"""A result file names all that it depends on."""

import json
import re
from pathlib import Path

import torch

from benchmarks.speed import results

CPU = torch.device("cpu")


def test_schema(tmp_path: Path) -> None:
    path = results.write_result("speed", CPU, {"name": "digits"}, {"results": [1]}, tmp_path / "new")
    got = json.loads(path.read_text())
    assert list(got) == ["theme", "date", "hardware", "versions", "revision", "study", "results"]
    assert set(got["hardware"]) == {"cpu", "cores", "threads", "gpu"}
    assert got["hardware"]["gpu"] is None
    assert got["hardware"]["cpu"]
    assert {"lntrust", "python", "torch", "numpy"} <= set(got["versions"])
    assert path.name == results.file_name("speed", CPU, got["date"])
    assert re.fullmatch(r"speed_[a-z0-9_]+-\d+-cores_\d{4}-\d\d-\d\d\.json", path.name)
