"""`python -m benchmarks.speed` as its users see it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed import ci, data

SMALL = [
    f"--set={each}"
    for each in (
        "graph.nodes=10", "graph.density=0.4", "partition.labelled=200", "partition.minimum=10",
        "partition.pool=100", "partition.shard=40", "training.stage1_rounds=2", "training.stage2_rounds=6",
        "training.batch=8", "methods.lntrust.budget=20",
    )
]  # fmt: skip


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random codes of a shape that takes a moment."""
    monkeypatch.setattr(data, "ROWS", 600)
    monkeypatch.setattr(data, "FEATURES", 16)


def result(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*.json")
    got: dict[str, Any] = json.loads(path.read_text())
    return got


class TestHelp:
    def test_the_themes(self, bench: Any) -> None:
        told = bench("--help").out
        for theme in ("roofline", "speed", "scale", "peer", "ci"):
            assert re.search(rf"│ {theme} ", told)

    @pytest.mark.parametrize(
        ("theme", "says"),
        [
            ("roofline", "1 cannot be beaten"),
            ("speed", "A short run warms up first"),
            ("scale", "no accuracy"),
            ("peer", "python -m benchmarks.speed peer --python ENV/bin/python"),
            ("ci", "exit code 1"),
        ],
    )
    def test_every_theme_explains_itself(self, bench: Any, theme: str, says: str) -> None:
        assert says in " ".join(bench(theme, "--help").out.split())


class TestRoofline:
    def test_a_table_and_a_file(self, bench: Any, tmp_path: Path) -> None:
        methods = ["--method", "lntrust", "--method", "independent"]
        got = bench("roofline", "--random-data", *methods, *SMALL, "--threads", "1", "--out", tmp_path)
        assert (got.code, got.err) == (0, "")
        assert "sparse-cifar10, lntrust, seed 0" in got.out
        written = result(tmp_path)
        assert (written["theme"], written["random_data"]) == ("roofline", True)
        assert written["study"]["graph"]["nodes"] == 10
        assert written["hardware"]["threads"] == 1
        assert [each["method"] for each in written["results"]] == ["lntrust", "independent"]
        for each in written["results"]:
            assert f"{each['ratio']['run']:.2f}" in got.out

    def test_rounds_shorten_it(self, bench: Any, tmp_path: Path) -> None:
        options = ["--random-data", "--rounds", "4", "--method", "independent", *SMALL, "--out", tmp_path]
        assert bench("roofline", *options).code == 0
        assert result(tmp_path)["results"][0]["schedule"]["rounds"] == 4

    def test_random_codes_where_there_is_no_data(self, bench: Any, tmp_path: Path) -> None:
        options = ["--data", tmp_path / "none", "--method", "independent", *SMALL, "--out", tmp_path]
        assert bench("roofline", *options).code == 0
        assert result(tmp_path)["random_data"] is True


class TestSpeed:
    def test_a_row_for_every_study_and_method(self, bench: Any, tmp_path: Path) -> None:
        options = ["--random-data", "--seed", "3", "--loop-rounds", "2", *SMALL, "--out", tmp_path]
        got = bench("speed", "sparse-cifar10", *options)
        assert (got.code, got.err) == (0, "")
        rows = result(tmp_path)["results"]
        assert [(row["method"], row["seeds"]) for row in rows] == [("lntrust", [3]), ("independent", [3])]
        assert all(row["loop"]["ratio"] > 0 for row in rows)
        assert set(result(tmp_path)["study"]) == {"sparse-cifar10"}


class TestScale:
    def test_a_table_a_file_and_a_plot(self, bench: Any, tmp_path: Path) -> None:
        sizes = ["--nodes", "40", "--nodes", "20", "--rows", "1500", "--features", "8"]
        sets = [
            f"--set={s}" for s in ("partition.pool=200", "partition.shard=50", "methods.lntrust.budget=20")
        ]
        got = bench("scale", *sizes, *sets, "--device", "cpu", "--out", tmp_path)
        assert (got.code, got.err) == (0, "")
        written = result(tmp_path)
        assert [row["nodes"] for row in written["results"]] == [20, 40]
        assert not re.search("accuracy|test", json.dumps(written["results"]))
        (plot,) = tmp_path.glob("*.png")
        assert plot.with_suffix(".json").is_file()


class TestPeer:
    def test_our_side_alone(self, bench: Any, tmp_path: Path) -> None:
        options = ["--rounds", "2", "--repeats", "1", "--threads", "1", "--device", "cpu", "--out", tmp_path]
        got = bench("peer", *options)
        assert (got.code, got.err) == (0, "")
        assert "gossipy was not measured" in got.out
        written = result(tmp_path)
        assert written["best"]["lntrust"]["updates"] == 200
        assert (written["ratio"], written["peer_versions"]) == (None, None)
        assert written["notes"]


class TestCI:
    @pytest.fixture
    def baseline(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        path = tmp_path / "baseline.json"
        ci.write_baseline(path, {"run": 3.0}, {})
        return path

    @pytest.mark.parametrize(("factor", "code"), [(0.5, 0), (1.9, 0), (2.0, 1), (5.0, 1)])
    def test_the_exit_code(
        self, bench: Any, baseline: Path, monkeypatch: pytest.MonkeyPatch, factor: float, code: int
    ) -> None:
        monkeypatch.setattr(ci, "measure", lambda: {"run": 3.0 * factor})
        got = bench("ci", "--baseline", baseline)
        assert got.code == code
        assert got.err.startswith("slower: run: ") is (code == 1)
        assert list(baseline.parent.iterdir()) == [baseline]

    def test_update_writes_what_is_measured(
        self, bench: Any, baseline: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ci, "measure", lambda: {"run": 9.0, "new": 1.0})
        assert bench("ci", "--baseline", baseline, "--update").code == 0
        assert ci.read_baseline(baseline) == {"run": 9.0, "new": 1.0}

    def test_a_result_file_where_one_is_wanted(
        self, bench: Any, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ci, "measure", lambda: {"run": 3.0})
        assert bench("ci", "--baseline", baseline, "--out", tmp_path / "out").code == 0
        written = result(tmp_path / "out")
        assert (written["ratios"], written["committed"]) == ({"run": 3.0}, {"run": 3.0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["roofline", "sprase-cifar10"], "sprase-cifar10"),
        (["roofline", "--method", "lntrst"], "--method lntrst: did you mean lntrust?"),
        (["roofline", "--method", "dml", "--random-data"], "--method dml: the roofline is known for"),
        (["roofline", "digits"], "learner .* is no linear head"),
        (["roofline", "digits", "--random-data"], "--random-data: stands in for cifar10 and cifar100"),
        (["speed", "digits", "nothing.toml"], "nothing.toml"),
        (["speed", "digits", "--method", "lntrst"], "--method lntrst: did you mean lntrust?"),
        (["scale", "--nodes", "3"], "--nodes 3: must be at least 6"),
        (["peer", "--python", "/no/python"], "--python /no/python: cannot be run"),
        (["ci", "--baseline", "none.json"], "--baseline none.json: is not there; --update writes it"),
        *(
            ([theme, "--out", __file__], "--out .*: is a file; must be a folder")
            for theme in ("roofline", "speed", "scale", "peer")
        ),
        *(
            pytest.param(
                [theme, "--device", "cuda"], "--device cuda: torch sees no GPU here",
                marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
            )
            for theme in ("roofline", "speed", "scale", "peer")
        ),
    ],
)  # fmt: skip
def test_bad_input(
    bench: Any, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    got = bench(*arguments)
    assert got.code == 2
    assert re.search(f"error: .*{message}", got.err)
    assert got.out == ""
    assert list(tmp_path.iterdir()) == []
