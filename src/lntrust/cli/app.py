"""The command line: all commands, and what `lntrust` alone says. Each group of commands has a file here."""

import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

import lntrust
from lntrust.cli import options, results, studies
from lntrust.cli.console import err, say, start
from lntrust.cli.data import data
from lntrust.cli.fleet import fleet
from lntrust.cli.node import node
from lntrust.cli.reproduce import reproduce
from lntrust.cli.run import run
from lntrust.cli.sweep import sweep
from lntrust.cli.tune import tune
from lntrust.core.errors import LNTrustError

_FIRST = """\
Learned Neighbor Trust: nodes that learn whom to ask. Try first:

  lntrust run            20 nodes, digits, four methods: a table in two minutes
  lntrust report runs    those runs as one page to look at: report.html
  lntrust methods        the methods that can be compared, and what each does
  lntrust studies        the studies that come along; your own is a TOML file
  lntrust fleet demo     eight live nodes on this machine, two killed on the way

All commands: lntrust --help. One of them: lntrust COMMAND --help."""

app = typer.Typer(
    name="lntrust",
    help="Learned Neighbor Trust: nodes that learn whom to ask. Start with `lntrust run`.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def first(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        say(f"lntrust {lntrust.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(_FIRST)


_COMMANDS: tuple[Callable[..., None], ...] = (
    run, sweep, tune, reproduce, results.compare, results.report, results.figures, results.collect,
    studies.studies, studies.methods, studies.graph,
)  # fmt: skip
for command in _COMMANDS:
    app.command(cls=options.Command)(command)
for name, group in {"data": data, "fleet": fleet, "node": node}.items():
    app.add_typer(group, name=name)


_FORWARD = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@app.command(context_settings=_FORWARD)
def bench(context: typer.Context) -> None:
    """Measure speed, memory and bytes on this machine: `python -m benchmarks.speed` in a checkout."""
    _run_beside("benchmarks.speed", context.args)


@fleet.command(context_settings=_FORWARD)
def demo(context: typer.Context) -> None:
    """Nodes on this machine learn from each other; two are killed, and a client goes on asking."""
    _run_beside("examples.fleet_demo", context.args)


def _run_beside(module: str, arguments: list[str]) -> None:
    """`python -m MODULE ARGUMENTS` of what lies beside the package in a checkout, and is not in the wheel."""
    command = f"python -m {shlex.join([module, *arguments])}"
    root = Path(lntrust.__file__).parents[2]
    if not root.joinpath(*module.split("."), "__main__.py").is_file():
        raise LNTrustError(f"this is in lntrust's sources, not in the package; in a checkout: {command}")
    say(f"hint: in {root} this is {command}", err)
    sys.path.insert(0, str(root))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """The entry point."""
    start(app)
