"""`lntrust node`: one live node, from its first settings to its answers."""

import json
import signal
import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table
from typer import Argument, Option

from lntrust.cli import options
from lntrust.cli.console import err, out, say

node = typer.Typer(help="A live node beside a model on a device.", no_args_is_help=True)

_ROWS = 20  # answers that are shown one by one
NodeFile = Annotated[Path, Argument(metavar="NODE.toml", help="The node's settings, or their folder.")]


@node.command()
def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder for the node; made if it is new.")],
    name: Annotated[str | None, Option(help="As in its certificate. Default: the folder's.")] = None,
    certificates: Annotated[
        Path | None, Option(metavar="DIR", help="Copy node.pem, node.key and ca.pem from here.")
    ] = None,
    neighbour: Annotated[
        list[str] | None,
        Option(metavar="NAME=HOST:PORT", help="Somebody to ask; may be given several times."),
    ] = None,
    listen: Annotated[str, Option(metavar="HOST:PORT", help="Where neighbours reach it.")] = "127.0.0.1:7447",
    http: Annotated[str, Option(metavar="HOST:PORT", help="Where clients reach it.")] = "127.0.0.1:8080",
    example: Annotated[
        int | None, Option(min=0, help="Data to try it with: part N of the digits; 0, 1 and 2 share nothing.")
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Write a NODE.toml to begin with, every line explained.

    With --example it runs as it is. Else say in it which model, which
    data, and what of it may be shown to neighbours. Its table trust is the
    preset lntrust+best, as far as a live node can run it.
    """
    from lntrust.fleet.operations.init import init_node

    name = name or folder.resolve().name
    for path in init_node(folder, name, certificates, neighbour or [], listen, http, example):
        say(f"wrote {path}")
    say(f"next: lntrust node check {folder}")


@node.command()
def settings(debug: options.Debug = False) -> None:
    """Every field of a NODE.toml: its default, and what it means."""
    from lntrust.fleet.settings import REFUSED, NodeSettings, fields_of

    table = Table(*(Column(name, overflow="fold") for name in ("field", "default", "meaning")))
    for path, default, meaning in fields_of(NodeSettings):
        refused = path in [f"trust.{name}" for name in REFUSED]
        note = "; a live node refuses it, leave it out" if refused else ""
        table.add_row(escape(path), escape(default), escape(meaning + note))
    out.print(table)


@node.command()
def check(
    file: NodeFile,
    wait: Annotated[float, Option(min=0.1, help="Seconds to wait for neighbours.")] = 5.0,
    debug: options.Debug = False,
) -> None:
    """Whether a node can run: settings, certificates, model, data, and every neighbour.

    Ends with 1 if something is wrong. A neighbour that does not answer is
    reported, and is no error: it may be off.
    """
    from lntrust.fleet.operations.check import check_node

    table = Table("", "what", Column("finding", overflow="fold"))
    wrong = 0
    for finding in check_node(file, wait):
        mark = {"good": "[green]✓", "warning": "[yellow]![/]", "bad": "[red]✗"}[finding.grade]
        table.add_row(mark, escape(finding.what), escape(finding.text))
        wrong += finding.grade == "bad"
    out.print(table)
    if wrong:
        raise typer.Exit(1)


@node.command()
def run(
    file: NodeFile,
    log: Annotated[Literal["json", "text"] | None, Option(help="How to log. Default: life.log.")] = None,
    debug: options.Debug = False,
) -> None:
    """Run a node until it is interrupted or told to end; it saves its state, and goes on from it.

    Learns, asks its neighbours, and answers them and its clients.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the imports take seconds; then the node has its own answer
    from lntrust.fleet.operations.process import run_node

    run_node(file, log)


@node.command()
def status(
    file: NodeFile,
    watch: Annotated[bool, Option("--watch", help="Again every second, until interrupted.")] = False,
    as_json: Annotated[bool, Option("--json", help="As one JSON object.")] = False,
    debug: options.Debug = False,
) -> None:
    """What a running node is doing: whom it trusts, who is there, what has passed."""
    from lntrust.fleet.http.client import Client
    from lntrust.fleet.operations.show import shown

    client = Client.of(file)
    if as_json:
        out.print_json(json.dumps(client.status()))
        return
    if not watch:
        out.print(Group(*shown(client.status())))
        return
    try:
        with Live(console=out, auto_refresh=False, screen=False) as live:
            while True:
                live.update(Group(*shown(client.status())), refresh=True)
                time.sleep(1.0)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@node.command()
def predict(
    file: NodeFile,
    inputs: Annotated[
        Path, Argument(metavar="INPUTS", help=".npz or .parquet with inputs x; .npy; or .json, a list.")
    ],
    model: Annotated[
        Literal["ensemble", "self"], Option(help="With those it trusts, or the node's own model alone.")
    ] = "ensemble",
    as_json: Annotated[bool, Option("--json", help="One JSON object, with all probabilities.")] = False,
    debug: options.Debug = False,
) -> None:
    """Ask a running node to classify inputs, through its HTTP door."""
    from lntrust.fleet.http.client import Client, accuracy, read_inputs

    client = Client.of(file)
    client.status()  # it is this node's door, and no other's
    answer = client.predict(read_inputs(inputs, client.settings), model)
    if as_json:
        out.print_json(json.dumps(answer))
        return
    table = Table("input", Column("class", overflow="fold"), "probability")
    rows = list(zip(answer["label"], answer["probabilities"], strict=True))
    for number, (label, row) in enumerate(rows[:_ROWS]):
        table.add_row(str(number), escape(label), f"{max(row):.3f}")
    out.print(table)
    if len(rows) > _ROWS:
        say(f"and {len(rows) - _ROWS} more; --json has all")
    if (right := accuracy(inputs, client.settings, answer["label"])) is not None:
        say(f"{right:.3f} of {len(rows)} are what the file says")
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in answer["weights"].items())
    say(f"answered by: {weights}", err)
    for why in answer["silent"]:
        say(f"did not answer: {why}", err)
