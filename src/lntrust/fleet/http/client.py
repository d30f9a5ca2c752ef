"""A running node's client: what the command line asks of it, through its HTTP door."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import urllib3
from jaxtyping import Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.answers import Which
from lntrust.fleet.http.tensors import Tensor, write_message
from lntrust.fleet.settings import NodeSettings, load_node
from lntrust.fleet.training.data import as_inputs, as_labels, read_table


@dataclass(frozen=True)
class Client:
    """Speaks to the node that a NODE.toml describes."""

    settings: NodeSettings

    @classmethod
    def of(cls, file: Path) -> "Client":
        settings = load_node(file)
        if settings.http.listen == "off":
            raise LNTrustError(f"node {settings.name}: http.listen = off, so that it cannot be asked")
        return cls(settings)

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._ask("/status")
        if answer.get("name") != self.settings.name:
            where = f"http.listen = {self.settings.http.listen}: is the door of {answer.get('name')}, not of "
            raise LNTrustError(f"{where}{self.settings.name}; nodes on one machine need different ones")
        return answer

    def predict(self, x: Shaped[ndarray, "m *s"], which: Which = "ensemble") -> dict[str, Any]:
        """Classes, probabilities, the weights of who answered, and who did not."""
        s = self.settings.input
        tensor = Tensor(s.name, x.astype(s.dtype, copy=False), binary=True)
        parts, headers = write_message({}, [tensor], "inputs")
        answer = self._ask(f"/v2/models/{which}/infer", b"".join(parts), headers)
        data = {each["name"]: each["data"] for each in answer["outputs"]}
        parameters = [(*name.partition("."), value) for name, value in answer["parameters"].items()]
        return {
            "label": data["label"],
            "probabilities": np.reshape(data["probabilities"], (len(x), -1)).tolist(),
            "weights": {name: weight for what, _, name, weight in parameters if what == "weight"},
            "silent": [f"{name}: {why}" for what, _, name, why in parameters if what == "silent"],
        }

    def _ask(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
        s, method = self.settings, "GET" if body is None else "POST"
        url = f"http://{s.http.listen}{path}"
        shown = {} if s.http.token is None else {"Authorization": f"Bearer {read_token(s.http.token)}"}
        sent, seconds = {**(headers or {}), **shown}, s.limits.deadline + 10
        try:
            answer = urllib3.request(method, url, body=body, headers=sent, timeout=seconds, retries=False)
        except urllib3.exceptions.HTTPError as error:
            where = f"no answer at {s.http.listen} ({type(error).__name__})"
            raise LNTrustError(f"node {s.name}: {where}; start it with `lntrust node run`") from None
        try:
            said = json.loads(answer.data)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise LNTrustError(f"{url}: answered with something else than a node would: not a node?")
        if answer.status != 200:
            raise LNTrustError(f"node {s.name}: {answer.status}: {said.get('error', said)}")
        return said


def read_token(path: Path, field: str = "http.token") -> str:
    """The word that clients show to a door."""
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LNTrustError(f"{field} = {path}: cannot be read: {error}") from None
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise LNTrustError(f"{field} = {path}: has to hold one word of plain letters, digits and signs")
    return token


def read_inputs(path: Path, settings: NodeSettings) -> Shaped[ndarray, "m *s"]:
    """Inputs to be classified, from a file."""
    try:
        if path.suffix == ".json":
            x = np.asarray(json.loads(path.read_text("utf-8")))
        elif path.suffix == ".npy":
            x = np.load(path, allow_pickle=False)
        else:
            x = np.asarray(read_table(str(path), "INPUTS")["x"])
    except (OSError, ValueError, EOFError) as error:
        raise LNTrustError(f"{path}: cannot be read: {error}") from None
    return as_inputs(x, settings.input, f"{path}: inputs")


def accuracy(path: Path, settings: NodeSettings, said: list[str]) -> float | None:
    """How many of these classes are right, if the file has labels."""
    if path.suffix not in (".npz", ".parquet") or "y" not in (table := read_table(str(path), "INPUTS")):
        return None
    truth = as_labels(np.asarray(table["y"]), "INPUTS", settings.input.classes)
    return float(np.mean([settings.input.classes[y] == label for y, label in zip(truth, said, strict=True)]))
