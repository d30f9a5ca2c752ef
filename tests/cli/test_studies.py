"""`lntrust studies`, `methods`, `graph` and `data` as their users see them."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from lntrust import load_study
from lntrust.experiment.tune import search_space
from lntrust.methods import list_methods
from lntrust.methods.lntrust.presets import names
from lntrust.study.loading import describe, list_studies


class TestStudies:
    def test_all(self, lntrust: Any) -> None:
        got = lntrust("studies")
        assert got.code == 0
        for name in list_studies():
            assert name in got.out
            assert load_study(name).about.split()[0] in got.out

    def test_one_with_every_field_and_its_meaning(self, lntrust: Any) -> None:
        got = lntrust("studies", "digits", "--set", "graph.nodes=8")
        assert got.code == 0
        for path, value, meaning in describe(load_study("digits", ["graph.nodes=8"])):
            shown = [re.sub(r"\s", "", "none" if text is None else str(text)) for text in (value, meaning)]
            assert got.cells[path] == shown

    def test_own_study(self, lntrust: Any, tiny_file: Path) -> None:
        assert lntrust("studies", tiny_file).cells["population.learners.1.kind"][0] == "forest"


class TestMethods:
    def test_all(self, lntrust: Any) -> None:
        got = lntrust("methods")
        assert got.code == 0
        assert all(name in got.out for name in names())
        for name, cls in list_methods().items():
            assert name in got.out
            assert cls.about.split()[0] in got.out

    @pytest.mark.parametrize("name", list_methods())
    def test_one(self, lntrust: Any, name: str) -> None:
        got = lntrust("methods", name)
        assert got.code == 0
        cls = list_methods()[name]
        assert (sys.modules[cls.__module__].__doc__ or "").strip().splitlines()[0][:60] in got.out
        assert all(field in got.out for field in cls.settings_class.model_fields)
        assert "→ " not in got.out
        if name in ("mean_teacher", "lntrust"):  # as the help of `tune` says
            shown = got.out.split("[methods.")[1]
            for where in search_space(cls.settings_class).values():
                for end in where.choices or (where.low, where.high):
                    assert (f"{end:g}" if isinstance(end, float) else str(end)) in shown

    @pytest.mark.parametrize("name", names())
    def test_a_preset_with_its_settings(
        self, lntrust: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        got = lntrust("methods", name)
        assert (got.code, got.err) == (0, "")
        assert f'[methods."{name}"]' in got.out
        assert "→ " in got.out


def test_what_data_is_here(lntrust: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uci_har").mkdir()
    (tmp_path / "uci_har" / "windows.npz").touch()
    got = lntrust("data", "--data", tmp_path)
    assert got.code == 0
    here = {name: yes for name, (yes, _) in got.cells.items()}
    assert here["digits"] == here["uci_har"] == "yes"
    assert here["cifar10"] == here["cifar100"] == here["eurosat"] == "no"
    assert got.cells["eurosat"][1] == f"{tmp_path}/eurosat/labels.npzisnotthere"
    assert "lntrust data download NAME" in got.words
    monkeypatch.setenv("LNTRUST_DATA", str(tmp_path))  # or as the environment says
    assert lntrust("data").out == got.out


class TestGraph:
    @pytest.mark.parametrize(
        ("name", "begin", "end"),
        [("graph.png", b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"), ("graph.pdf", b"%PDF-", b"%%EOF\n"),
         ("graph.svg", b"<?xml", b"</svg>\n")],
    )  # fmt: skip
    def test_every_kind_of_file(
        self, lntrust: Any, tiny_file: Path, tmp_path: Path, name: str, begin: bytes, end: bytes
    ) -> None:
        path = tmp_path / "new folder" / name
        got = lntrust("graph", tiny_file, "-o", path)
        assert got.code == 0
        assert got.out.startswith(f"{path}: 5 nodes, 7 edges, degree 2–")
        assert got.out.rstrip().endswith("3 linear, 2 forest")
        content = path.read_bytes()
        assert content.startswith(begin)
        assert content.endswith(end)
        assert list(path.parent.iterdir()) == [path]  # and nothing beside it
        if name == "graph.png":
            image = imread(path)
            assert image.shape[:2] == (1125, 1350)  # 7.5 × 9 inches at 150 dots
            assert 0.02 < float((image[..., :3].min(axis=-1) < 0.9).mean()) < 0.5  # something is drawn

    @pytest.mark.parametrize("nodes", [1, 2])
    def test_hardly_any_nodes(self, lntrust: Any, tiny_file: Path, here: Path, nodes: int) -> None:
        few = [f"graph.nodes={nodes}", "graph.kind=complete", f"partition.labelled={50 * nodes}"]
        assert lntrust("graph", tiny_file, *(f"--set={each}" for each in few), "-o", "graph.svg").code == 0
        text = Path("graph.svg").read_text()
        assert "linear (1)" in text
        assert ("forest (1)" in text) == (nodes == 2)  # the last learner may have no nodes

    def test_the_name_without_one(self, lntrust: Any, tiny_file: Path, here: Path) -> None:
        assert lntrust("graph", tiny_file, "--seed", "2").code == 0
        assert (here / "tiny-seed2.png").is_file()
