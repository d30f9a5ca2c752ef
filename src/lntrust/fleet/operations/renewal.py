"""A node's certificates, looked at again and again: whether there are new ones, and what keeps them out."""

import logging
from contextlib import suppress
from pathlib import Path

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import event
from lntrust.fleet.operations.certificates import digest

_COPYING = 3  # looks in a row, before files that do not go together are no longer just being copied


class Renewal:
    """Of the files of one node, in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._used: bytes | None = None  # none: not known, or to be tried again
        self._misfits = 0  # looks in a row

    def take_up(self) -> None:
        """The files as they are now are those in use."""
        self._used = None
        with suppress(LNTrustError):
            self._used = digest(self._folder, self._name)

    def try_again(self) -> None:
        """They could not be used: they are due at the next look."""
        self._used = None

    def due(self) -> bool:
        """Whether there are new ones that go together. What is in their way is logged once."""
        try:
            found = digest(self._folder, self._name)
        except LNTrustError as error:
            self._misfits += 1
            if self._misfits == _COPYING:
                note = "nothing changes until they go together"
                event("certificates cannot be taken up", level=logging.WARNING, error=str(error), note=note)
            return False
        self._misfits = 0
        return found != self._used
