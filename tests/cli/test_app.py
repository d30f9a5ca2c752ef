"""The command line as its users see it."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from matplotlib.image import imread

from lntrust import load_study
from lntrust.cli.app import app
from lntrust.learners import batch
from lntrust.methods import list_methods
from lntrust.study.loading import describe, list_studies

SCORES = (
    "test", "self", "test_pooled", "self_pooled", "stage1", "p10", "harmed", "best_neighbor_oracle",
    "best_round_test_selected",
)  # fmt: skip
BYTES = ("total", "query", "reply", "parameters", "anchors", "framing", "by_phase")
PER_NODE = ("test", "self", "test_pooled", "size", "favoured_share")


def words(text: str) -> str:
    """A table's text without its lines and line breaks."""
    return " ".join(re.sub(r"[━┏┓┗┛┃┡╇┩│└┴┘├┼┤─┬╭╮╰╯]", " ", text).split())


def cells(table: str) -> dict[str, list[str]]:
    """First cell → the others, without white space; a cell may go on in the rows below."""
    rows: dict[str, list[str]] = {}
    name = ""
    for line in table.splitlines():
        if line.startswith("│"):
            first, *others = [re.sub(r"\s", "", cell) for cell in line.strip("│").split("│")]
            name = first or name
            rows[name] = [a + b for a, b in zip(rows.get(name, [""] * len(others)), others, strict=True)]
    return rows


class TestRun:
    @pytest.fixture
    def _few_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs of a few steps draw millions of positions ahead otherwise; it changes no result."""
        monkeypatch.setattr(batch, "_DRAWN_AT_ONCE", 2_000)

    @pytest.fixture
    def four(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> Any:
        methods = ["--method", "independent", "--method", "uniform"]
        return lntrust(
            "run", tiny_file, *methods, "--seed", "0", "--seed", "1", "--json", "--out", tmp_path / "out"
        )

    def test_json_is_one_object_per_run_and_nothing_else(self, four: Any, tmp_path: Path) -> None:
        assert (four.code, four.err) == (0, "")
        lines = four.out.splitlines()
        summaries = [json.loads(line) for line in lines]
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
            (folder,) = (tmp_path / "out" / "tiny" / summary["method"]).glob(f"seed-{summary['seed']}-*")
            assert json.loads((folder / "summary.json").read_text()) == summary

    def test_the_run_folder_holds_what_is_promised(self, four: Any, tmp_path: Path) -> None:
        import pyarrow.parquet as pq

        folders = sorted((tmp_path / "out" / "tiny").glob("*/seed-*"))
        assert len(folders) == 4
        for folder in folders:
            assert sorted(p.name for p in folder.iterdir()) == [
                "evaluations", "rounds.parquet", "run.json", "summary.json",
            ]  # fmt: skip
            assert [p.name for p in sorted((folder / "evaluations").iterdir())] == [
                f"round-0000{number}.safetensors" for number in (2, 4, 5)
            ]
            rounds = pq.read_table(folder / "rounds.parquet").to_pydict()
            assert rounds["round"] == [1, 2, 3, 4, 5]
            assert [value is not None for value in rounds["test"]] == [False, True, False, True, True]
            told = json.loads((folder / "run.json").read_text())
            assert told["study"]["graph"]["nodes"] == 5
            assert {"lntrust", "torch", "python"} <= set(told["versions"])

    def test_the_table_names_every_method_and_seed(
        self, lntrust: Any, tiny_file: Path, tmp_path: Path
    ) -> None:
        got = lntrust("run", tiny_file, "--seed", "3", "--out", tmp_path / "out")
        assert (got.code, got.err) == (0, "")
        assert "tiny, seed 3" in got.out
        for word in ("independent", "uniform", "Test", "Self", "pooled", "harmed", "bytes", "per answer"):
            assert word in got.out
        assert f"Run folders: {tmp_path / 'out' / 'tiny'}" in got.out.replace("\n", "")

    def test_studies_say_which_methods_and_seeds(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        own = tmp_path / "own.toml"
        own.write_text('inherits = "tiny.toml"\ncompare = ["uniform"]\nseeds = [4, 2]\n')
        got = lntrust("run", own, "--json", "--out", tmp_path / "out")
        runs = [(s["method"], s["seed"]) for s in map(json.loads, got.out.splitlines())]
        assert runs == [("uniform", 4), ("uniform", 2)]

    @pytest.mark.parametrize(
        "words",
        [
            ["--method", "uniform", "--method", "independent", "--method", "uniform"],
            ["--method", "lntrust+best", "--preset", "best"],
        ],
    )
    def test_a_method_that_is_named_twice_is_run_once(
        self, lntrust: Any, tiny_file: Path, tmp_path: Path, words: list[str]
    ) -> None:
        got = lntrust("run", tiny_file, *words, "--json", "--out", tmp_path / "out")
        assert got.code == 0
        runs = [json.loads(line)["method"] for line in got.out.splitlines()]
        assert runs == list(dict.fromkeys(word for word in words[1::2] if word != "best"))

    def test_a_finished_run_is_kept(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        arguments = ["run", tiny_file, "--method", "uniform", "--json", "--out", tmp_path / "out"]
        first = lntrust(*arguments)
        files = [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
        before = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in files}
        for said in ([], ["--resume"]):  # which older scripts say
            again = lntrust(*arguments, *said)
            assert again.out == first.out  # `seconds` too
            assert again.err == "kept 1; --fresh makes them anew\n"
        assert {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in files} == before
        lntrust(*arguments, "--fresh")
        (summary,) = (p for p in files if p.name == "summary.json")
        assert summary.stat().st_mtime_ns > before[summary][0], "it is run anew"

    @pytest.mark.usefixtures("_few_batches")
    def test_who_cannot_take_part_is_said_once_and_not_for_every_seed(
        self, lntrust: Any, tiny_file: Path, tmp_path: Path
    ) -> None:
        arguments = ["run", tiny_file, "--method", "mean_teacher", "--method", "d_psgd", "--json"]
        got = lntrust(*arguments, "--set", "graph.seed=1", "--seed", "0", "--seed", "1", "--out", tmp_path)
        assert got.code == 0
        assert len(got.out.splitlines()) == 4
        alone = "learners without gradient steps train alone and answer when asked: forest"
        notes = got.err.splitlines()
        assert notes[0] == f"note: mean_teacher: {alone}"
        assert notes[1].startswith("note: d_psgd: parameters are shared inside one architecture only: linear")
        assert notes[2:] == [f"note: d_psgd: {alone}"]

    @pytest.mark.usefixtures("_few_batches")
    def test_who_answers_in_the_end_is_told(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        arguments = ["run", tiny_file, "--method", "independent", "--json", "--out", tmp_path / "out"]
        alone = json.loads(lntrust(*arguments).out)
        together = json.loads(lntrust(*arguments, "--set", "deploy=uniform").out)
        assert (alone["deploy"], together["deploy"]) == (None, "uniform")
        assert together["per_node"]["self"] == alone["per_node"]["self"]
        assert together["per_node"]["test_pooled"] != alone["per_node"]["test_pooled"]
        assert len(list((tmp_path / "out" / "tiny" / "independent").iterdir())) == 2

    @pytest.mark.usefixtures("_few_batches")
    def test_a_method_may_have_a_learning_rate_of_its_own(
        self, lntrust: Any, tiny_file: Path, tmp_path: Path
    ) -> None:
        """It counts for this method alone: what else is compared keeps its result and its folder."""
        arguments = ["run", tiny_file, "--method", "independent", "--method", "uniform", "--json"]
        arguments += ["--out", tmp_path / "out"]
        before = [json.loads(line) for line in lntrust(*arguments).out.splitlines()]
        got = lntrust(*arguments, "--set", "methods.independent.lr=0.001")
        after = [json.loads(line) for line in got.out.splitlines()]
        for one in (*before, *after):
            one.pop("seconds")
        assert before[1] == after[1]
        assert before[0]["per_node"]["test_pooled"] != after[0]["per_node"]["test_pooled"]
        folders = {m: sorted((tmp_path / "out" / "tiny" / m).iterdir()) for m in ("independent", "uniform")}
        assert [len(some) for some in folders.values()] == [2, 1]
        told = [json.loads((f / "run.json").read_text())["settings"]["lr"] for f in folders["independent"]]
        assert set(told) == {None, 0.001}

    def test_the_demo_is_three_seeds_of_four_methods_in_a_line_each(
        self, lntrust: Any, tmp_path: Path
    ) -> None:
        """In few rounds; the numbers of the whole are the README's."""
        short = ("training.stage1_rounds=2", "training.stage2_rounds=3", "methods.lntrust.budget=40")
        short = (*short, "methods.lntrust+best.final_rounds=0", "population.learners.3.options={trees=3}")
        sets = [word for each in short for word in ("--set", each)]
        got = lntrust("run", *sets, "--out", tmp_path / "out")
        assert (got.code, got.err) == (0, "")
        lines = got.out.splitlines()
        assert lines[0].strip() == "digits, seeds 0, 1, 2"
        scores, trust = got.out.split("whom each node trusts")
        rows = [line for line in scores.splitlines() if line.startswith("│")]
        names = [line.split()[1] for line in rows]
        assert names == ["independent", "uniform", "lntrust", "lntrust+best"]
        assert all(re.search(r"│ +\.\d{3} ±\.\d{3} │ +\.\d{3} │", line) for line in rows)
        assert "lntrust+best, seed 0: " in scores.splitlines()[-1]
        assert "19 (forest)" in trust
        assert len(list((tmp_path / "out" / "digits").glob("*/seed-*/summary.json"))) == 12

    def test_ctrl_c_says_that_the_run_can_go_on(self, tiny_file: Path, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "lntrust.cli", "run", str(tiny_file), "--out", str(tmp_path / "out")]
        command += ["--set", "training.stage2_rounds=100000", "--set", "evaluation.every=100000"]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Whoever runs the tests in the background ignores Ctrl-C, and children would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while not list((tmp_path / "out").rglob("checkpoint.safetensors")):
                assert time.monotonic() < deadline
                assert child.poll() is None, child.communicate()
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=30)
        finally:
            child.kill()
        assert child.returncode == 130
        assert (out, err) == ("", "interrupted; what was done is kept, and the same command continues\n")
        assert not [p for p in (tmp_path / "out").rglob(".*") if p.is_file()]


class TestLists:
    def test_studies(self, lntrust: Any) -> None:
        got = lntrust("studies")
        assert got.code == 0
        for name in list_studies():
            assert name in got.out
            assert load_study(name).about.split()[0] in got.out

    def test_one_study_with_every_field_and_its_meaning(self, lntrust: Any) -> None:
        got = lntrust("studies", "digits", "--set", "graph.nodes=8")
        assert got.code == 0
        rows = cells(got.out)
        for path, value, meaning in describe(load_study("digits", ["graph.nodes=8"])):
            assert rows[path][0] == re.sub(r"\s", "", "none" if value is None else str(value))
            assert rows[path][1] == re.sub(r"\s", "", meaning)

    def test_own_study(self, lntrust: Any, tiny_file: Path) -> None:
        got = lntrust("studies", tiny_file)
        assert got.code == 0
        assert cells(got.out)["population.learners.1.kind"][0] == "forest"

    def test_methods(self, lntrust: Any) -> None:
        got = lntrust("methods")
        assert got.code == 0
        for name, cls in list_methods().items():
            assert name in got.out
            assert cls.about.split()[0] in got.out

    @pytest.mark.parametrize("name", list_methods())
    def test_one_method(self, lntrust: Any, name: str) -> None:
        got = lntrust("methods", name)
        assert got.code == 0
        doc = sys.modules[list_methods()[name].__module__].__doc__ or ""
        assert doc.strip().splitlines()[0][:60] in got.out
        for field in list_methods()[name].settings_class.model_fields:
            assert field in got.out

    def test_an_unknown_method(self, lntrust: Any) -> None:
        got = lntrust("methods", "nothing")
        assert got.code == 2
        assert got.err.startswith("error: method nothing: must be one of centralized, d_psgd, decdiff_vt")

    def test_data(self, lntrust: Any, tmp_path: Path) -> None:
        there = tmp_path / "uci_har"
        there.mkdir()
        (there / "windows.npz").touch()
        got = lntrust("data", "--data", tmp_path)
        assert got.code == 0
        here = {name: yes for name, (yes, _) in cells(got.out).items()}
        assert here["digits"] == here["uci_har"] == "yes"
        assert here["cifar10"] == here["cifar100"] == here["eurosat"] == "no"
        assert cells(got.out)["eurosat"][1] == f"{tmp_path}/eurosat/labels.npzisnotthere"
        assert "lntrust data download NAME" in words(got.out)

    def test_data_is_looked_for_where_the_environment_says(
        self,
        lntrust: Any,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("LNTRUST_DATA", str(tmp_path / "d"))
        assert re.sub(r"\s", "", str(tmp_path / "d")) in re.sub(r"\s", "", lntrust("data").out)


class TestGraph:
    def test_png(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        path = tmp_path / "graph.png"
        got = lntrust("graph", tiny_file, "-o", path)
        assert got.code == 0
        assert got.out.startswith(f"{path}: 5 nodes, 7 edges, degree 2–")
        assert got.out.rstrip().endswith("3 linear, 2 forest")
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        image = imread(path)
        assert image.shape[:2] == (1125, 1350)  # 7.5 × 9 inches at 150 dots
        assert 0.02 < float((image[..., :3].min(axis=-1) < 0.9).mean()) < 0.5  # something is drawn

    @pytest.mark.parametrize(("suffix", "magic"), [("pdf", b"%PDF"), ("svg", b"<?xml")])
    def test_other_kinds(
        self, lntrust: Any, tiny_file: Path, tmp_path: Path, suffix: str, magic: bytes
    ) -> None:
        path = tmp_path / f"graph.{suffix}"
        assert lntrust("graph", tiny_file, "--out", path).code == 0
        assert path.read_bytes().startswith(magic)

    def test_the_name_without_one(
        self,
        lntrust: Any,
        tiny_file: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert lntrust("graph", tiny_file, "--seed", "2").code == 0
        assert (tmp_path / "tiny-seed2.png").is_file()


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


class TestHelp:
    def test_the_promised_commands(self) -> None:
        promised = {
            ("run",),
            ("tune",),
            ("studies",),
            ("methods",),
            ("data",),
            ("data", "extract"),
            ("graph",),
        }
        assert promised <= set(COMMANDS)
        options = {option for parameter in COMMANDS["run",].params for option in parameter.opts}
        assert {
            "--method",
            "--seed",
            "--set",
            "--device",
            "--backend",
            "--out",
            "--json",
            "--fresh",
        } <= options

    @pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
    def test_every_command_and_option_is_explained(self, lntrust: Any, path: tuple[str, ...]) -> None:
        command = COMMANDS[path]
        got = lntrust(*path, "--help")
        assert got.code == 0
        assert (command.help or "").split("\n")[0][:60] in words(got.out)
        for parameter in command.params:
            assert parameter.help, parameter.name
            assert parameter.help.split()[0] in got.out
            for option in parameter.opts:
                if option.startswith("-"):
                    assert option in got.out

    def test_without_arguments_the_help_is_shown(self, lntrust: Any) -> None:
        got = lntrust()
        assert all(" ".join(path) in got.out + got.err for path in COMMANDS if len(path) == 1)
