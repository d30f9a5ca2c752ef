"""A neighbour that misbehaves: a real door, with its own certificate, whose answers a test chooses.

It knows the digits by heart, so that trust in it is well founded as long as it is honest. It writes down what
it was asked.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy import ndarray
from sklearn.datasets import load_digits

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.transport import Door, RefusedError
from lntrust.fleet.peers.zenoh_config import LIMIT, Place
from lntrust.fleet.settings import NodeSettings
from lntrust.network.codec import decode, encode


class Rogue:
    """`mode` may change at any time, to what `ANSWERS` and `GREETINGS` have. Close it in the end."""

    def __init__(self, place: Place, settings: NodeSettings, mode: str = "honest") -> None:
        x, y = load_digits(return_X_y=True)
        self._by_heart = {image.astype(np.uint8).tobytes(): int(c) for image, c in zip(x, y, strict=True)}
        self.settings, self.mode, self.version = settings, mode, 1000
        self.hellos: list[str] = []  # who has greeted
        self.asked: list[tuple[str, ndarray]] = []  # who has shown which inputs
        self.questions: list[tuple[bytes, ...]] = []  # as they came, with an attachment if there was one
        self._closed = threading.Event()
        self.door = Door(place, self.answer, workers=8, waiting=64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self.door.close()

    @property
    def facts(self) -> dict[str, Any]:
        return wire.facts(self.settings.input, len(self.settings.neighbours), self.version)

    def dawdle(self) -> Self:
        """Until the mode is another one, or the rogue is closed."""
        mode = self.mode
        while self.mode == mode and not self._closed.wait(0.02):
            pass
        return self

    def right(self, x: ndarray) -> ndarray:
        """What it honestly thinks."""
        C = len(self.settings.input.classes)
        p = np.full((len(x), C), 0.1 / (C - 1), dtype=np.float32)
        for row, image in zip(p, x, strict=True):
            row[self._by_heart.get(image.tobytes(), 0)] = 0.9
        return p

    def reply(self, p: ndarray, version: int | None = None) -> bytes:
        return encode(wire.reply(p, 0, self.version if version is None else version))

    def hello(self, **changed: Any) -> bytes:
        return encode(wire.hello({**self.facts, **changed}, "reply"))

    def answer(self, asker: str, *data: bytes) -> bytes:
        message = decode(data[0])
        if wire.HELLO in message.tensors:
            self.hellos.append(asker)
            return GREETINGS.get(self.mode, Rogue.hello)(self)
        x = wire.inputs_in(message, self.settings.input)
        self.asked.append((asker, x))
        self.questions.append(data)
        return ANSWERS.get(self.mode, honest)(self, x)

    # -- asking -----------------------------------------------------------------------------------

    def greet(self, name: str, timeout: float = 60.0) -> dict[str, Any]:
        return wire.facts_in(decode(self.door.ask(name, encode(wire.hello(self.facts)), timeout)))

    def ask(self, name: str, x: ndarray, timeout: float = 60.0) -> ndarray:
        """As an honest neighbour would."""
        reply = decode(self.door.ask(name, encode(wire.question(x)), timeout))
        return wire.probabilities_in(reply, len(x), len(self.settings.input.classes))

    def flood(self, name: str, x: ndarray, seconds: float, at_once: int = 64) -> tuple[int, set[str]]:
        """Ask as fast as it goes, so long and at least some hundred times: how many were answered, and
        why others were not."""
        question, end = encode(wire.question(x)), time.monotonic() + seconds
        answered, refusals = list[bool](), set[str]()

        def ask(_: int) -> None:
            try:
                self.door.ask(name, question, 2.0)
                answered.append(True)
            except LNTrustError as error:
                refusals.add(str(error) if isinstance(error, RefusedError) else type(error).__name__)
                answered.append(False)

        with ThreadPoolExecutor(at_once) as threads:
            while time.monotonic() < end or len(answered) <= 200:
                list(threads.map(ask, range(at_once)))
        return sum(answered), refusals


def honest(rogue: Rogue, x: ndarray) -> bytes:
    return rogue.reply(rogue.right(x))


ANSWERS: dict[str, Callable[[Rogue, ndarray], bytes]] = {
    "honest": honest,
    "slow": lambda rogue, x: honest(rogue.dawdle(), x),
    "garbage": lambda rogue, x: np.random.default_rng(len(x)).bytes(1000),
    "nan": lambda rogue, x: rogue.reply(np.full_like(rogue.right(x), np.nan)),
    "constant": lambda rogue, x: rogue.reply(np.eye(10, dtype=np.float32)[np.full(len(x), 7)]),
    "huge": lambda rogue, x: bytes(LIMIT + (1 << 20)),
    "just too large": lambda rogue, x: rogue.reply(np.zeros((LIMIT // 40 + 1, 10), dtype=np.float32)),
}
GREETINGS: dict[str, Callable[[Rogue], bytes]] = {
    "slow hello": lambda rogue: rogue.dawdle().hello(),
    "garbage hello": lambda rogue: b"\xff" * 100,
    "permuted hello": lambda rogue: rogue.hello(classes=list(rogue.settings.input.classes[::-1])),
}
