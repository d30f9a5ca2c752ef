"""What the commands share: options, consoles, how errors and Ctrl-C end."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from lntrust.core.errors import LNTrustError
from lntrust.core.memory import keep_memory
from lntrust.core.plugins import users_fault
from lntrust.study.settings import once_each

out = Console(emoji=False)  # `mine:Fire` is a name
err = Console(stderr=True, emoji=False)


class DebugSwitch:
    wanted = False


def _want_debug(value: bool) -> bool:
    DebugSwitch.wanted = DebugSwitch.wanted or value
    return value


StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="A study's name (`lntrust studies`) or a .toml file.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="path.to.field=value",
        help="Change a field of the study; may be given several times.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data", help="Where the datasets are; else LNTRUST_DATA, else ~/.local/share/lntrust."),
]
Device = Annotated[Literal["cpu", "cuda", "auto"], typer.Option(help="auto takes a GPU where there is one.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Make all runs anew, those that are finished or begun, too.")
]
Debug = Annotated[bool, typer.Option("--debug", callback=_want_debug, help="Show the traceback of an error.")]


def again(fresh: bool) -> str:
    """What continues an interrupted command: with --fresh it would begin anew."""
    return "the same command without --fresh" if fresh else "the same command"


@contextmanager
def interruptible(how: str) -> Iterator[None]:
    """Ctrl-C is no error: typer would say nothing, and the user shall know what is left, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"interrupted; what was done is kept, and {how} continues", highlight=False)
        raise typer.Exit(130) from None


def seeds_of(texts: Sequence[str]) -> list[int]:
    """`0,1,4-6` → 0, 1, 4, 5, 6. Each of them once."""
    found: list[int] = []
    for text in texts:
        for part in text.split(","):
            match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
            if not match or int(match[2] or match[1]) < int(match[1]):
                raise LNTrustError(
                    f"--seeds {text}: must be numbers and ranges with commas between, as 0,1,4-6"
                )
            found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return once_each(found, "--seeds")


def start(app: typer.Typer) -> None:
    """Run a command line: errors are one message and exit code 2; a traceback only with --debug."""
    # Threads that wait sleep instead of spinning: a fifth slower on a machine of one's own, ten times faster
    # on one that is shared. Has to be set before torch is loaded, which the commands do when they need it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_memory()
    try:
        app()
    except Exception as error:
        if DebugSwitch.wanted:
            raise
        code, text = 2, f"error: {error}"
        if not isinstance(error, LNTrustError) and (users := users_fault(error)):
            text = f"error: {users}\nThis is in your own code, not in lntrust's; --debug shows the traceback."
        elif not isinstance(error, LNTrustError):
            code = 1
            text = f"internal error: {type(error).__name__}: {error}\nThis is a bug; --debug shows where."
        err.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(code)
