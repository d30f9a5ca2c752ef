"""`python -m examples.fleet_demo`: see `demo.py`. `lntrust fleet demo` runs it, too."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from examples.fleet_demo.demo import run_demo
from examples.fleet_demo.show import Watch, shown
from examples.fleet_demo.supervisor import FleetError
from lntrust.cli.console import err, out, start
from lntrust.cli.options import Debug

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(
    nodes: Annotated[int, typer.Option(min=4, max=8, help="How many processes.")] = 8,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep settings, data, states and logs in this folder."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Nodes on this machine learn from each other; two are killed, and a client goes on asking.

    Each is a process with a model of another kind and digits of its own, and
    talks to its neighbours over mutual TLS on the loopback. Two are killed
    in the middle of training, and one comes back. All the time a client
    asks those that are up. Takes about a minute on two cores.
    """
    try:
        with _ended_by_signals(), _folder(keep) as folder, Watch(err, nodes) as watch:
            result = run_demo(folder, nodes, watch.say, watch.look)
    except FleetError as error:
        err.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        err.print("interrupted; all processes of the demonstration have ended", highlight=False)
        raise typer.Exit(130) from None
    for part in shown(result):
        out.print(part, highlight=False)
    if any(each.answered < each.questions for each in result.phases):
        raise typer.Exit(1)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="lntrust-demo-") as name:
        yield Path(name)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: with all its processes."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    start(app)
