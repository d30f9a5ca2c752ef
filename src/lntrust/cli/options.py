"""The options that commands share, each in one place: the same word for the same thing everywhere."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from lntrust.cli.console import err, say
from lntrust.core.errors import LNTrustError
from lntrust.study.settings import once_each


def no_file(parameter: typer.CallbackParam, folder: Path | None) -> Path | None:
    """Refuse a file where a folder is meant."""
    if folder and folder.is_file():  # said before the work, not after it
        name = parameter.opts[0]
        raise LNTrustError(f"{name} {folder}: is a file; must be a folder, or a name for a new one")
    return folder


def a_file(path: Path, *suffixes: str) -> None:
    """Refuse what does not end in one of these, and a folder where a file is meant."""
    if path.suffix not in suffixes:
        raise LNTrustError(f"--out {path}: must end in {' or '.join(', '.join(suffixes).rsplit(', ', 1))}")
    if path.is_dir():
        raise LNTrustError(f"--out {path}: is a folder; must be a file, or a name for a new one")


StudyName = Annotated[
    str, Argument(metavar="STUDY", help="A study's name (`lntrust studies`) or a .toml file.")
]
Methods = Annotated[
    list[str] | None,
    Option(
        "--method",
        help="A method's name (`lntrust methods`) or package.module:Name; several with commas between, or "
        "given several times. Default: those the study compares.",
    ),
]
Seeds = Annotated[
    list[str] | None,
    Option(
        "--seed",
        help="Seeds and ranges: 0, 0,2 or 0-4; may be given several times. Default: the study's or table's.",
    ),
]
Seed = Annotated[list[str] | None, Option("--seed", help="The seed. Default: 0.")]
Sets = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="path.to.field=value",
        help="Change a field of the study; may be given several times.",
    ),
]
DataDir = Annotated[
    Path | None,
    Option("--data", help="Where the datasets are; else LNTRUST_DATA, else ~/.local/share/lntrust."),
]
Device = Annotated[Literal["cpu", "cuda", "auto"], Option(help="auto takes a GPU where there is one.")]
Out = Annotated[Path, Option("--out", metavar="DIR", callback=no_file, help="Where run folders go.")]
Resume = Annotated[
    bool,
    Option(
        "--resume/--fresh",
        help="Keep what is finished and go on with what was begun (the default), or make all anew.",
    ),
]
Workers = Annotated[
    int | None,
    Option(
        min=1,
        help="Tasks at a time on this machine. Default: 1 on a CPU, since one run uses all cores. More pay "
        "where a run uses one core only, as it does below a million input numbers a step (nodes × batch × "
        "features), and where memory holds the data as often. On GPUs: one for each.",
    ),
]
Json = Annotated[
    bool, Option("--json", help="One JSON object per run (or method tuned) on standard output, and no table.")
]
Debug = Annotated[bool, Option("--debug", help="Show the traceback of an error.")]  # `console.start` does
RunPaths = Annotated[
    list[Path],
    Argument(
        metavar="RUNS",
        help="Folders with runs at any depth, and collections (.parquet, by `lntrust collect`). "
        "What is in several of them counts once.",
    ),
]

_BEFORE = {"--methods": "--method", "--seeds": "--seed"}  # spellings of version 0.1


class Command(TyperCommand):
    """A command that still takes old spellings, and says how they are spelt now."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        for k, word in enumerate(args):
            name, sign, value = word.partition("=")
            if name in _BEFORE:
                args[k] = _BEFORE[name] + sign + value
                say(f"hint: {name} is now {_BEFORE[name]}", err)
        if {"--resume", "--fresh"} <= set(args):
            raise LNTrustError("--fresh: makes all runs anew, and --resume keeps them; give one of them")
        return super().parse_args(ctx, args)


def methods_of(texts: Sequence[str] | None) -> list[str]:
    """`a,b` and `c` → a, b, c. Each of them once: a run beside its copy would look like two."""
    return list(dict.fromkeys(name.strip() for text in texts or [] for name in text.split(",")))


def seeds_of(texts: Sequence[str] | None) -> list[int]:
    """`0,1` and `4-6` → 0, 1, 4, 5, 6. None may be there twice."""
    found: list[int] = []
    for text in texts or []:
        for part in text.split(","):
            match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
            if not match or int(match[2] or match[1]) < int(match[1]):
                raise LNTrustError(f"--seed {text}: must be numbers and ranges with commas, as 0,1,4-6")
            found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return once_each(found, "--seed")


def seed_of(texts: Sequence[str] | None) -> int:
    """The one seed of a command that takes one."""
    first, *others = seeds_of(texts) or [0]
    if others:
        raise LNTrustError(f"--seed {','.join(texts or [])}: must be one seed here")
    return first
