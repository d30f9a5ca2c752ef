"""As many threads as work is worth: on little of it, two lose more time agreeing than they save."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

FEW = 1_000_000  # numbers that one thread works through sooner than two


def fit_threads(numbers: int) -> None:
    """One thread from here on, if steps are on no more than so many numbers."""
    if numbers < FEW:
        torch.set_num_threads(1)


@contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """The same for a while."""
    before = torch.get_num_threads()
    fit_threads(numbers)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
