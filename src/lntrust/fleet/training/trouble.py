"""Errors in training: what the last one was, when to try again, and the way back to before it."""

import torch

from lntrust.learners import Population
from lntrust.methods import State

_FIRST, _LONGEST = 1.0, 60.0  # seconds before training is tried again


class Trouble:
    """Written by the thread that learns, read by those who tell."""

    def __init__(self) -> None:
        self.error: str | None = None  # none: all is well
        self.failures = 0  # since the node started
        self._pause = 0.0

    def note(self, error: BaseException) -> float:
        """Training has failed. Returns after how many seconds to try again: ever more, up to a minute."""
        self.error = f"{type(error).__name__}: {error}"
        self.failures += 1
        self._pause = min(2 * self._pause or _FIRST, _LONGEST)
        return self._pause

    def over(self) -> None:
        """What was tried has gone well."""
        self.error, self._pause = None, 0.0


class Before:
    """The model and the method's state before a round.

    A round that fails half-way is tried again. Without a way back every try would move the model further, on
    the same few examples.
    """

    def __init__(self, population: Population, state: State) -> None:
        self._population = {name: tensor.clone() for name, tensor in population.state().items()}
        # A twin's tensors are its parameters, which change in place; all others are replaced.
        self._state = {k: t.clone() if k.startswith("twin/") else t for k, t in state.items()}

    def put_back(self, population: Population) -> State:
        """Into the model; the method's state is returned."""
        population.temperature = None
        with torch.no_grad():
            population.load(self._population)
        return self._state
