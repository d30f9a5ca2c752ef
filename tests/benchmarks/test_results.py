"""A result file names all that it depends on."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed import results
from lntrust import LNTrustError

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


def test_a_gpu_gives_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200 (80 GB)")
    gpu = torch.device("cuda")
    assert results.file_name("scale", gpu, "2026-01-02") == "scale_nvidia-h200-80-gb_2026-01-02.json"
    assert results.hardware(gpu)["gpu"] == "NVIDIA H200 (80 GB)"


class TestRevision:
    def test_of_a_repository(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(results, "__file__", str(tmp_path / "results.py"))
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for command in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "one"]):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
        revision = results.revision()
        assert revision is not None
        assert re.fullmatch("[0-9a-f]{40}", revision)

    def test_none_outside_of_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(results, "__file__", str(tmp_path / "results.py"))
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
        assert results.revision() is None

    def test_none_without_git(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def absent(*_: Any, **__: Any) -> None:
            raise FileNotFoundError("git")

        monkeypatch.setattr(subprocess, "run", absent)
        assert results.revision() is None


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LNTrustError, match="is a file; must be a folder"):
        results.write_result("speed", CPU, None, {}, file)
