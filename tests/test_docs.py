"""The documents are true: their method runs and prints what they say, their commands exist."""

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lntrust import load_study
from lntrust.cli.app import app
from lntrust.experiment.reproduction import load_reproduction
from lntrust.study.loading import list_studies

ROOT = Path(__file__).parents[1]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.is_file()]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


class TestOwnMethod:
    """docs/methods.md."""

    PAGE = ROOT / "docs" / "methods.md"

    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder with the page's method in it."""
        (tmp_path / "distil.py").write_text(blocks(self.PAGE, "python")[0], "utf-8")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    def test_it_prints_what_the_page_says(self, lntrust: Any, here: Path) -> None:
        command, output = blocks(self.PAGE, "sh")[0], blocks(self.PAGE, "text")[0]
        program, *arguments = shlex.split(command)
        assert program == "lntrust"
        got = lntrust(*arguments)
        assert (got.code, got.err) == (0, "")
        assert timeless(got.out) == timeless(output)
        assert "distil:Distil" in output

    def test_it_is_short(self) -> None:
        (method, *_) = blocks(self.PAGE, "python")
        assert len([line for line in method.splitlines() if line.strip()]) <= 30

    def test_the_settings_are_settings(self, here: Path, lntrust: Any) -> None:
        """The second block in the place of the first class line, and the page's second command."""
        (here / "distil.py").write_text(blocks(self.PAGE, "python")[1], "utf-8")
        sys.modules.pop("distil", None)
        _, *arguments = shlex.split(blocks(self.PAGE, "sh")[1])
        small = ["--set", "graph.nodes=5", "--set", "partition.labelled=250"]
        rounds = ["--set", "training.stage1_rounds=1", "--set", "training.stage2_rounds=1"]
        assert lntrust(*arguments, *small, *rounds).code == 0
        assert lntrust(*arguments, *small, *rounds, "--set", "methods.distil:Distil.budget=0").code == 2
        sys.modules.pop("distil", None)


def timeless(table: str) -> str:
    """A table without the seconds in its last column, and without blanks at line ends."""
    return "\n".join(re.sub(r" +\d+(\.\d)?$", " *", line.rstrip()) for line in table.splitlines())


PROGRAMS = {
    "lntrust ": app,
    # Not imported: whoever runs it later would be warned that it is there already.
    "python -m benchmarks.speed ": runpy.run_module("benchmarks.speed", run_name="bench")["bench"],
}


def commands(page: Path) -> Iterator[str]:
    """Every `lntrust …` in code: lines of blocks, with what continues them, and inline. No output."""
    text = page.read_text("utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    for block in [block for language, block in found if language != "text"]:
        for line in re.sub(r"\\\n|\n\s+(?=\S)", " ", block).splitlines():
            if line.strip().startswith(tuple(PROGRAMS)):
                yield line.strip().split(" #")[0]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    inline = re.findall(rf"`((?:{'|'.join(PROGRAMS)})[^`]+)`", prose)
    yield from (" ".join(each.split()) for each in inline)


FOUND = [(page, command) for page in PAGES for command in commands(page)]


def options_of(command: Any) -> dict[str, Any]:
    pairs = [(option, each) for each in command.params for option in (*each.opts, *each.secondary_opts)]
    return dict(pairs) | {"--help": None}


@pytest.mark.parametrize(("page", "command"), FOUND, ids=[f"{p.stem}: {c[:50]}" for p, c in FOUND])
def test_a_command_that_is_shown_exists(page: Path, command: str) -> None:
    program = next(each for each in PROGRAMS if command.startswith(each))
    words = shlex.split(re.sub(r"[\[\]…]", " ", command.removeprefix(program)), comments=True)
    here: Any = typer.main.get_command(PROGRAMS[program])
    while words and hasattr(here, "commands"):
        if words[0] not in here.commands:
            assert getattr(here, "invoke_without_command", False), f"{page.name}: {words[0]} is no command"
            break
        here = here.commands[words.pop(0)]
    known, values, positional = options_of(here), [], []
    while words:
        word = words.pop(0)
        name, _, value = word.partition("=")
        if not word.startswith("-"):
            positional.append(word)
        elif name == "--set" and not value:
            values.append(words.pop(0))
        else:
            assert name in known, f"{page.name}: {command} has no option {name}"
            if known[name] is not None and not known[name].is_flag and not value and words:
                words.pop(0)
    arguments = [p for p in here.params if not p.opts[0].startswith("-")]
    assert len(positional) <= len(arguments), f"{page.name}: {command} takes no {positional[-1]}"
    study = positional[0] if positional else "digits"
    if here.name in ("run", "studies", "graph") and study in list_studies():
        load_study(study, [one for one in values if "path.to" not in one])


def test_pages_show_commands() -> None:
    assert {"data.md", "methods.md"} <= {page.name for page, _ in FOUND}


LINKS = [
    (page, target)
    for page in PAGES
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text("utf-8"))
]


@pytest.mark.parametrize(("page", "target"), LINKS, ids=[f"{p.stem}: {t}" for p, t in LINKS])
def test_links_between_documents_lead_somewhere(page: Path, target: str) -> None:
    assert (page.parent / target).exists()


STUDIES = [(page, text) for page in PAGES for text in blocks(page, "toml") if "inherits" in text]


@pytest.mark.parametrize(("page", "text"), STUDIES, ids=lambda value: getattr(value, "name", ""))
def test_a_study_that_is_shown_loads(page: Path, text: str, tmp_path: Path) -> None:
    file = tmp_path / "shown.toml"
    file.write_text(text, "utf-8")
    assert load_study(file).graph.nodes > 0


def test_the_readme_shows_a_study_and_python_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert any(page == ROOT / "README.md" for page, _ in STUDIES)
    (code,) = blocks(ROOT / "README.md", "python")
    rounds = '"training.stage1_rounds=2", "training.stage2_rounds=2", '
    short = code.replace('"graph.nodes=8"', f'{rounds}"graph.nodes=8"')
    assert short != code
    exec(short, {})
    test, own = map(float, capsys.readouterr().out.split())
    assert 0 <= own <= 1
    assert 0 <= test <= 1


def test_the_reproduction_shown_is_one(tmp_path: Path) -> None:
    """docs/methods.md."""
    (shown,) = blocks(ROOT / "docs" / "methods.md", "toml")
    (tmp_path / "mine.toml").write_text(shown, "utf-8")
    one = load_reproduction(str(tmp_path / "mine.toml"))
    (panel,) = one.panels
    assert [panel.study_of(row).training.stage2_rounds for row in panel.rows] == [50] * 3
    assert len(one.tasks("cpu")) == 6
