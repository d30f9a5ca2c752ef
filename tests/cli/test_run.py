"""`lntrust run` as its users see it."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from lntrust.methods.lntrust.presets import SAFE

SCORES = (
    "test", "self", "test_pooled", "self_pooled", "stage1", "p10", "harmed", "best_neighbor_oracle",
    "best_round_test_selected",
)  # fmt: skip
BYTES = ("total", "query", "reply", "parameters", "anchors", "framing", "by_phase")
PER_NODE = ("test", "self", "test_pooled", "size", "favoured_share")


@pytest.fixture
def ran(lntrust: Any, tiny_file: Path, here: Path) -> Any:
    """Runs the tiny study with these options, into `out`; the summaries."""

    def call(*options: str | Path) -> list[dict[str, Any]]:
        got = lntrust("run", tiny_file, *options, "--json", "--out", "out")
        assert got.code == 0, got.err
        return [json.loads(line) for line in got.out.splitlines()]

    return call


class TestResults:
    def test_json_is_one_object_per_run_and_nothing_else(self, ran: Any, here: Path) -> None:
        summaries = ran("--method", "independent,uniform", "--seed", "0-1")
        runs = [(s["study"], s["method"], s["seed"], s["device"], s["backend"]) for s in summaries]
        assert runs == [
            ("tiny", method, seed, "cpu", "batched")
            for method in ("independent", "uniform")
            for seed in (0, 1)
        ]
        for summary in summaries:
            assert all(isinstance(summary[k], float) and 0 <= summary[k] <= 1 for k in SCORES)
            assert set(BYTES) <= set(summary["bytes"])
            assert all(isinstance(summary["bytes"][k], int) for k in BYTES[:-1])
            assert all(len(summary["per_node"][k]) == 5 for k in PER_NODE)
            assert summary["per_node"]["size"] == [50] * 5
            assert summary["seconds"] > 0
            assert summary["test"] == pytest.approx(np.mean(summary["per_node"]["test"]))
            assert summary["test_pooled"] == pytest.approx(np.mean(summary["per_node"]["test_pooled"]))
            (folder,) = (here / "out" / "tiny" / summary["method"]).glob(f"seed-{summary['seed']}-*")
            self.check(folder, summary)

    def check(self, folder: Path, summary: dict[str, Any]) -> None:
        """A run folder holds what is promised."""
        names = ["attempt-1.json", "evaluations", "rounds.parquet", "run.json", "summary.json"]
        assert sorted(path.name for path in folder.iterdir()) == names
        assert json.loads((folder / "summary.json").read_text()) == summary
        evaluated = [f"round-0000{number}.safetensors" for number in (2, 4, 5)]
        assert sorted(path.name for path in (folder / "evaluations").iterdir()) == evaluated
        rounds = pq.read_table(folder / "rounds.parquet").to_pydict()
        assert rounds["round"] == [1, 2, 3, 4, 5]
        assert [value is not None for value in rounds["test"]] == [False, True, False, True, True]
        identity = json.loads((folder / "run.json").read_text())
        assert identity["study"]["graph"]["nodes"] == 5
        assert {"lntrust", "torch", "python"} <= set(identity["versions"])

    def test_the_demo_is_three_seeds_of_four_methods_in_a_line_each(self, lntrust: Any, here: Path) -> None:
        """In few rounds; the numbers of the whole are the README's."""
        short = ("training.stage1_rounds=2", "training.stage2_rounds=3", "methods.lntrust.budget=40")
        short = (*short, "methods.lntrust+best.final_rounds=0", "population.learners.3.options={trees=3}")
        got = lntrust("run", *(f"--set={each}" for each in short))
        assert (got.code, got.err) == (0, "")
        assert got.out.splitlines()[0].strip() == "digits, seeds 0, 1, 2"
        assert max(map(len, got.out.splitlines())) <= 80
        scores, trust = got.out.split("whom each node trusts")
        _, table = scores.split("─\n")
        rows = [line.split() for line in table.splitlines()[:4]]
        assert [row[0] for row in rows] == ["independent", "uniform", "lntrust", "lntrust+best"]
        for name, test, spread, own, pooled, *shares in rows:
            assert all(re.fullmatch(r"[±]?\.\d{3}", number) for number in (test, spread, own, pooled))
            told = r"\d+ % – – " if name == "independent" else r"(\d+ % ){3}"
            assert re.match(told, " ".join(shares)), "harmed, and below Independent on both scores"
        assert "lntrust+best, seed 0: " in scores.splitlines()[-1]
        assert "19 (forest)" in trust
        assert "Run folders: runs/digits" in got.out
        assert len(list((here / "runs" / "digits").glob("*/seed-*/summary.json"))) == 12

    def test_a_certificate_in_a_few_lines(self, lntrust: Any, tiny_file: Path, here: Path) -> None:
        """Of all seeds together; the numbers are those of --json, and what does not hold is said."""
        run = ("run", tiny_file, "--method", "independent,lntrust", "--seed", "0-1", "--out", "out")
        assert lntrust(*run, "--certify").code == 2, "independent has none"
        run = (*run[:3], "lntrust", *run[4:], "--certify")
        got, as_json = lntrust(*run), lntrust(*run, "--json")
        reports = [json.loads(line)["method_report"] for line in as_json.out.splitlines()]
        assert max(map(len, got.out.splitlines())) <= 80
        assert "lntrust, seeds 0, 1: its certificate" in got.out
        xi = np.concatenate([report["certificate"]["per_node"]["xi"] for report in reports])
        assert got.cells["ξatmost:abovethebestαonV_i"] == [
            f"{of(xi):.3g}" for of in (np.min, np.median, np.max)
        ]
        assert "Not so: momentum = 0.9." in got.words
        assert "its certificate" not in lntrust(*run[:-1]).out

    def test_a_certificate_of_an_earlier_version_is_said_to_be_one(
        self, lntrust: Any, tiny_file: Path, here: Path
    ) -> None:
        """Its ξ could be less than the gap, so it is not shown."""
        run = ("run", tiny_file, "--method", "lntrust", "--seed", "0", "--out", "out", "--certify")
        assert lntrust(*run).code == 0
        (file,) = (here / "out").glob("tiny/lntrust/seed-0-*/summary.json")
        summary = json.loads(file.read_text())
        certificate = summary["method_report"]["certificate"]
        del certificate["assumptions"], certificate["per_node"]["xi_at_least"]
        file.write_text(json.dumps(summary))
        got = lntrust(*run)
        assert "ξatmost:abovethebestαonV_i" not in got.cells
        assert "--fresh makes it anew" in got.words


class TestWhatIsRun:
    def test_studies_say_which_methods_and_seeds(self, lntrust: Any, tiny_file: Path, here: Path) -> None:
        Path("own.toml").write_text('inherits = "tiny.toml"\ncompare = ["uniform"]\nseeds = [4, 2]\n')
        got = lntrust("run", "own.toml", "--json")
        runs = [(s["method"], s["seed"]) for s in map(json.loads, got.out.splitlines())]
        assert runs == [("uniform", 4), ("uniform", 2)]

    @pytest.mark.parametrize(
        ("options", "methods"),
        [
            (["--method", "uniform,independent", "--method", "uniform"], ["uniform", "independent"]),
            (["--method", "lntrust+best", "--preset", "best"], ["lntrust+best"]),
            (["--method", "independent", "--preset", "best"], ["independent", "lntrust+best"]),
        ],
    )
    def test_a_method_that_is_named_twice_is_run_once(
        self, ran: Any, options: list[str], methods: list[str]
    ) -> None:
        assert [summary["method"] for summary in ran(*options)] == methods

    def test_a_method_may_have_a_learning_rate_of_its_own(self, ran: Any, here: Path) -> None:
        """It counts for this method alone: what else is compared keeps its result and its folder."""
        before = ran("--method", "independent,uniform")
        after = ran("--method", "independent,uniform", "--set", "methods.independent.lr=0.001")
        assert before[1] == after[1]
        assert before[0]["per_node"]["test_pooled"] != after[0]["per_node"]["test_pooled"]
        folders = {m: sorted((here / "out" / "tiny" / m).iterdir()) for m in ("independent", "uniform")}
        assert [len(some) for some in folders.values()] == [2, 1]
        rates = [json.loads((f / "run.json").read_text())["settings"]["lr"] for f in folders["independent"]]
        assert set(rates) == {None, 0.001}

    def test_a_finished_run_is_kept(self, lntrust: Any, tiny_file: Path, here: Path) -> None:
        arguments = ["run", tiny_file, "--method", "uniform", "--json"]
        first = lntrust(*arguments)
        files = [p for p in (here / "runs").rglob("*") if p.is_file()]
        before = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in files}
        for said in ([], ["--resume"]):
            again = lntrust(*arguments, *said)
            assert again.out == first.out  # `seconds` too
            assert again.err == "note: kept 1; --fresh makes them anew\n"
        assert {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in files} == before
        lntrust(*arguments, "--fresh")
        (summary,) = (p for p in files if p.name == "summary.json")
        assert summary.stat().st_mtime_ns > before[summary][0], "it is run anew"

    def test_who_cannot_take_part_is_said_once_and_not_for_every_seed(
        self, lntrust: Any, tiny_file: Path, here: Path
    ) -> None:
        arguments = ["run", tiny_file, "--method", "mean_teacher,d_psgd", "--set", "graph.seed=1"]
        got = lntrust(*arguments, "--seed", "0-1", "--json")
        assert got.code == 0
        assert len(got.out.splitlines()) == 4
        alone = "learners without gradient steps train alone and answer when asked: forest"
        notes = got.err.splitlines()
        assert notes[0] == f"note: mean_teacher: {alone}"
        assert notes[1].startswith("note: d_psgd: parameters are shared inside one architecture only: linear")
        assert notes[2:] == [f"note: d_psgd: {alone}"]

    def test_ctrl_c_says_that_the_run_can_go_on(self, tiny_file: Path, here: Path) -> None:
        command = [sys.executable, "-m", "lntrust.cli", "run", str(tiny_file)]
        command += ["--set", "training.stage2_rounds=100000", "--set", "evaluation.every=100000"]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Whoever runs the tests in the background ignores Ctrl-C, and children would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while not list(Path("runs").rglob("checkpoint.safetensors")):
                assert time.monotonic() < deadline
                assert child.poll() is None, child.communicate()
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=30)
        finally:
            child.kill()
        assert child.returncode == 130
        assert (out, err) == ("", "interrupted; what was done is kept, and the same command continues\n")
        assert not [path for path in Path("runs").rglob(".*") if path.is_file()]


def test_a_preset_is_short_for_a_method_s_name(lntrust: Any, tiny_file: Path, here: Path) -> None:
    summaries = []
    for k, how in enumerate((["--preset", "safe"], ["--method", "lntrust+safe"])):
        got = lntrust("run", tiny_file, *how, "--json", "--out", str(k))
        assert got.code == 0
        assert "trust is learned once" in got.err  # 50 final rounds, and Stage 2 has three
        summaries.append(json.loads(got.out) | {"seconds": None})
    assert summaries[0] == summaries[1]
    (first,), (second,) = (Path(str(k)).glob("tiny/lntrust+safe/seed-0-*") for k in (0, 1))
    assert first.name == second.name
    identity = json.loads((first / "run.json").read_text())
    assert identity["method"] == summaries[0]["method"] == "lntrust+safe"
    assert SAFE.settings.items() <= identity["settings"].items()
