"""The command line as a whole: its help, its first words, the words that all commands share."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lntrust import __version__
from lntrust.cli.app import app
from lntrust.cli.options import methods_of, seed_of, seeds_of


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))
BESIDE = {("bench",), ("fleet", "demo")}  # whose help is that of what they run


def options(path: str) -> set[str]:
    return {option for each in COMMANDS[path,].params for option in (*each.opts, *each.secondary_opts)}


class TestHelp:
    @pytest.mark.parametrize("path", [path for path in COMMANDS if path not in BESIDE], ids=" ".join)
    def test_every_command_and_option_is_explained(self, lntrust: Any, path: tuple[str, ...]) -> None:
        command = COMMANDS[path]
        got = lntrust(*path, "--help")
        assert got.code == 0
        assert (command.help or "").split("\n")[0][:60] in got.words
        for parameter in command.params:
            assert parameter.help, parameter.name
            assert parameter.help.split()[0] in got.out
            assert all(option in got.out for option in parameter.opts if option.startswith("-"))

    def test_all_commands(self, lntrust: Any) -> None:
        got = lntrust("--help")
        assert got.code == 0
        assert all(f"│ {path[0]} " in got.out for path in COMMANDS if len(path) == 1)

    def test_what_every_column_means(self, lntrust: Any) -> None:
        words = lntrust("compare", "--help").words
        columns = (
            "Test",
            "Self",
            "gain",
            "Δ Indep.",
            "10 %",
            "harmed",
            "below Indep.",
            "P",
            "GB per node",
            "asked",
        )
        assert all(f" {column}: " in words for column in columns)
        assert "95 % confidence" in words

    def test_alone_it_says_what_to_try_first(self, lntrust: Any) -> None:
        got = lntrust()
        assert (got.code, got.err) == (0, "")
        tries = [line.split() for line in got.out.splitlines() if line.startswith("  lntrust ")]
        assert len(tries) == 5
        assert all(tuple(words[1:2]) in COMMANDS for words in tries)
        assert max(map(len, got.out.splitlines())) <= 80

    def test_the_version(self, lntrust: Any) -> None:
        assert lntrust("--version").out == f"lntrust {__version__}\n"


class TestOneLanguage:
    @pytest.mark.parametrize("command", ["run", "sweep", "tune", "reproduce"])
    def test_the_same_words(self, command: str) -> None:
        assert {"--method", "--seed", "--out", "--json", "--resume", "--fresh"} <= options(command)
        assert ("--set" in options(command)) == (command != "reproduce")  # whose tables say what is set

    @pytest.mark.parametrize("command", ["run", "sweep", "tune"])
    def test_old_spellings_do_with_a_hint(
        self, lntrust: Any, quick_file: Path, here: Path, command: str
    ) -> None:
        """They are for one version, and in no help."""
        few = ["--trials", "1"] if command == "tune" else ["--device", "cpu"]
        got = lntrust(command, quick_file, "--methods", "uniform", "--seeds=3", *few, "--json")
        assert got.code == 0
        assert '"method": "uniform"' in got.out
        assert got.err.startswith("hint: --methods is now --method\nhint: --seeds is now --seed\n")
        assert "--seeds" not in lntrust(command, "--help").out

    def test_seeds(self) -> None:
        assert seeds_of(["0,2", "5-7"]) == [0, 2, 5, 6, 7]
        assert seeds_of(None) == []
        assert (seed_of(None), seed_of(["7"])) == (0, 7)

    def test_methods(self) -> None:
        assert methods_of(["a,b", "lntrust+best", "a"]) == ["a", "b", "lntrust+best"]

    @pytest.mark.parametrize("command", ["run", "sweep", "tune", "reproduce"])
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ("--seed 0,x", "--seed 0,x: must be numbers and ranges with commas, as 0,1,4-6"),
            ("--seed 3-1", "--seed 3-1: must be numbers and ranges with commas, as 0,1,4-6"),
            ("--seed -1", "--seed -1: must be numbers and ranges with commas, as 0,1,4-6"),
            ("--fresh --resume", "--fresh: makes all runs anew, and --resume keeps them; give one of them"),
        ],
    )
    def test_what_is_wrong_is_said_alike(self, refused: Any, command: str, wrong: str, message: str) -> None:
        name = "sparse" if command == "reproduce" else "digits"
        assert refused(command, name, *wrong.split()) == message


class TestBesideThePackage:
    """Benchmarks and examples are no part of the wheel."""

    def test_in_a_checkout_it_is_run(self, lntrust: Any) -> None:
        got = lntrust("bench", "--help")
        assert got.code == 0
        assert "Usage: python -m benchmarks.speed" in got.out
        root = Path(__file__).parents[2]
        assert got.err == f"hint: in {root} this is python -m benchmarks.speed --help\n"

    def test_elsewhere_it_says_where_it_is(self, tmp_path: Path) -> None:
        package = Path(__file__).parents[2] / "src" / "lntrust"
        shutil.copytree(package, tmp_path / "site" / "lntrust", ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-m", "lntrust.cli", "bench", "ci"]
        got = subprocess.run(
            command, env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, check=False
        )
        assert (got.returncode, got.stdout) == (2, "")
        assert got.stderr.startswith("error: this is in lntrust's sources, not in the package; in a checkout")
        assert got.stderr.endswith(": python -m benchmarks.speed ci\n")


def test_debug_shows_the_traceback() -> None:
    command = [sys.executable, "-m", "lntrust.cli", "studies", "nothing", "--debug"]
    got = subprocess.run(command, capture_output=True, text=True, check=False)
    assert got.returncode != 0
    assert "Traceback" in got.stderr
    assert "study nothing: Neither" in got.stderr
