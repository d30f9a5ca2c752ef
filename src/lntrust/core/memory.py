"""Memory that a process has freed, it will want again."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 32 << 20  # the most that it takes from memory it has already
_forever: list[bool] = []  # whether this process keeps all of it


def keep_memory() -> None:
    """Tell glibc to keep freed memory: buffers that come afresh have to be cleared by the system first.

    For a process of our own; a library would be impolite to do so. No effect elsewhere than on Linux.
    """
    _forever.append(True)
    _keep()


@contextmanager
def kept_memory() -> Iterator[None]:
    """The same for a while, in anybody's process: what is free in the end goes back to the system."""
    if _forever:
        yield
        return
    _keep()
    try:
        yield
    finally:
        _call("mallopt", _TRIM_THRESHOLD, 2 * _LARGEST)  # as glibc has it once such a block was freed
        _call("malloc_trim", 0)


def _keep() -> None:
    _call("mallopt", _MMAP_THRESHOLD, _LARGEST)
    _call("mallopt", _TRIM_THRESHOLD, 1 << 30)


def _call(name: str, *arguments: int) -> None:
    """A function of glibc's, where there is one."""
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
    if function is not None:
        function(*arguments)
