"""Memory that a process has freed, it will want again."""

import ctypes
import sys

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 32 << 20  # the most that it takes from memory it has already


def keep_memory() -> None:
    """Tell glibc to keep freed memory: buffers that come afresh have to be cleared by the system first.

    For a process of our own; a library would be impolite to do so. No effect elsewhere than on Linux.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, 1 << 30)
