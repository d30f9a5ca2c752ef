"""The door for clients in a process of its own. It prints its address, and ends with standard input.

Its node has one small number as input and ten classes, so that small questions have large answers.
"""

import sys

import numpy as np
from http_service import Node, settings
from numpy import ndarray

from lntrust.fleet.http.app import HttpDoor
from lntrust.fleet.http.service import Prediction, Which


class Ten(Node):
    """As good as any model of ten classes, here."""

    def predict(self, x: ndarray, which: Which = "ensemble") -> Prediction:
        z = np.sin(np.arange(1, 11, dtype=np.float32) * x.astype(np.float32)) + 2
        return Prediction(z / z.sum(1, keepdims=True), {"a": 1.0}, {"a": self.version}, {})


if __name__ == "__main__":
    given = {"shape": [1], "dtype": "uint8", "classes": [f"class {number}" for number in range(10)]}
    door = HttpDoor(Ten(settings(largest=16 << 20, input=given)))
    print(door.address, flush=True)
    sys.stdin.read()
    door.close()
