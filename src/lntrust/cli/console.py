"""How the commands speak, and how they end: errors in a sentence, Ctrl-C with a word on how to go on."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, ProgressColumn

from lntrust.core.errors import LNTrustError
from lntrust.core.memory import keep_memory
from lntrust.core.plugins import users_fault

out = Console(emoji=False)  # `mine:Fire` is a name
err = Console(stderr=True, emoji=False)


def say(text: str, to: Console = out, style: str | None = None) -> None:
    """Print text as it is: nothing in it is markup, and lines break where the terminal breaks them."""
    to.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def notes() -> Callable[[str], None]:
    """Says each thing once, however many runs it is true of."""
    return cache(lambda text: say(f"note: {text}", err) if text else None)


@contextmanager
def bars(*columns: ProgressColumn) -> Iterator[Callable[[str], Callable[..., None]]]:
    """Where standard error is a terminal: given a name, a bar for it, as the function that moves it."""
    with Progress(*columns, console=err, disable=not err.is_terminal) as shown:

        def begin(name: str) -> Callable[..., None]:
            task = shown.add_task(escape(name), total=None, loss="", start=False, visible=False)

            def move(done: int, total: int, loss: float | None = None) -> None:
                shown.start_task(task)
                shown.update(task, completed=done, total=total or None, visible=True)
                if loss is not None:
                    shown.update(task, loss=f"loss {loss:.3f}")

            return move

        yield begin


@contextmanager
def interruptible(resume: bool = True) -> Iterator[None]:
    """Ctrl-C is no error: typer would say nothing, and the user shall know what is left, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        how = "the same command" if resume else "the same command without --fresh"  # which would begin anew
        say(f"interrupted; what was done is kept, and {how} continues", err)
        raise typer.Exit(130) from None


def start(app: typer.Typer) -> None:
    """Run a command line: errors are one message and exit code 2; a traceback only with --debug."""
    # Threads that wait sleep instead of spinning: a fifth slower on a machine of one's own, ten times faster
    # on one that is shared. Has to be set before torch is loaded, which the commands do when they need it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_memory()
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        code = 2
        if isinstance(error, LNTrustError):
            text = f"error: {error}"
        elif users := users_fault(error):
            text = f"error: {users}\nThis is in your own code, not in lntrust's; --debug shows the traceback."
        else:
            code, what = 1, f"{type(error).__name__}: {error}"
            text = f"internal error: {what}\nThis is a bug; --debug shows where."
        say(text, err, style="red")
        sys.exit(code)
