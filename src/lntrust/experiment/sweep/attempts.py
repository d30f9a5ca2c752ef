"""Attempts: who works on a run, where more than one process may believe that it does.

A worker that is lost may only be out of reach, and go on. So whoever takes up a run first takes a number in
its folder, `attempt-N.json`, and the highest number owns the run. A hard link makes the file: on one machine
and on a shared file system alike exactly one of many gets each number, and its content is there at once.
An attempt looks for the next number before it writes, and stops when there is one. Between that look and a
write there is an instant in which a newer attempt may begin; nothing is spoilt, since every file appears
whole, by one rename, and both attempts make the same bits.
"""

import os
import socket
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_json, write_json


class Superseded(LNTrustError):  # noqa: N818 - it is no error
    """A newer attempt owns the run: this one stops and writes nothing more."""


@dataclass(frozen=True)
class Attempt:
    """One number in one run folder."""

    folder: Path
    number: int

    def check(self) -> None:
        """Numbers have no gaps, so a newer attempt exists exactly when the next number does."""
        newer = _file(self.folder, self.number + 1)
        if newer.exists():
            raise Superseded(f"{self.folder}: attempt {self.number} stops, since {newer.name} is newer")


def claim(folder: Path, resumed: int = 0) -> Attempt:
    """Take the next number of a run folder. `resumed` is the round of the checkpoint that is found there."""
    number = 1 + max(_numbers(folder), default=0)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"host": socket.gethostname(), "pid": os.getpid(), "started": started, "resumed": resumed}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".attempt-") as own:
            while True:
                content = Path(own) / str(number)
                write_json(content, {"number": number, **about})
                if _linked(content, _file(folder, number)):
                    return Attempt(folder, number)
                number += 1
    except OSError as error:
        raise LNTrustError(
            f"{folder}: cannot take an attempt number: {error}; a sweep's folder must be writable, on a file "
            "system with hard links"
        ) from None


def attempts(folder: Path) -> list[dict[str, Any]]:
    """All attempts at a run, the owner last."""
    return [read_json(_file(folder, number)) for number in sorted(_numbers(folder))]


def _numbers(folder: Path) -> list[int]:
    return [int(path.stem.removeprefix("attempt-")) for path in folder.glob("attempt-*.json")]


def _linked(content: Path, name: Path) -> bool:
    """Give a file a second name, unless another has that name already."""
    try:
        os.link(content, name)
    except FileExistsError:
        return content.stat().st_nlink == 2  # NFS may say so of our own link, when its first answer was lost
    return True


def _file(folder: Path, number: int) -> Path:
    return folder / f"attempt-{number}.json"
