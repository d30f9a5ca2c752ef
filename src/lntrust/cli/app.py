"""The command line: all commands, and what `lntrust` alone says. Each group of commands has a file here."""

from collections.abc import Callable
from typing import Annotated

import typer

from lntrust import __version__
from lntrust.cli import options, results, studies
from lntrust.cli.beside import FORWARD, run_beside
from lntrust.cli.console import say, start
from lntrust.cli.data import data
from lntrust.cli.fleet import fleet
from lntrust.cli.node import node
from lntrust.cli.reproduce import reproduce
from lntrust.cli.run import run
from lntrust.cli.sweep import sweep
from lntrust.cli.tune import tune

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
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        say(f"lntrust {__version__}")
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


@app.command(context_settings=FORWARD)
def bench(context: typer.Context) -> None:
    """Measure speed, memory and bytes on this machine: `python -m benchmarks.speed` in a checkout."""
    run_beside("benchmarks.speed", context.args)


def main() -> None:
    """The entry point."""
    start(app)
