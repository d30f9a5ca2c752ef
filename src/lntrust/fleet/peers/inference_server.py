"""A server of the Open Inference Protocol v2 as a neighbour: MLServer, Triton, KServe, or a node's own door.

It knows nothing of fleets. It is asked over HTTP for one output with class probabilities: in JSON, or in
bytes after the JSON where its metadata say that it takes them. Whatever it answers may be wrong in any way,
or come too late, or never end: the caller gets probabilities of the right shape in its own order of classes,
or one of the two errors of the door between nodes.
"""

import io
import json
import re
import socket
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPResponse
from typing import Any, NamedTuple

import numpy as np
import urllib3
from jaxtyping import Float, Float32, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.http.client import read_token
from lntrust.fleet.http.tensors import JSON_MEMORY, Tensor, read_tensors, split, write_message
from lntrust.fleet.peers.transport import NoAnswerError, RefusedError, readable
from lntrust.fleet.settings import InputSettings, NeighbourSettings

_CONNECTIONS = 4  # that are kept open
_SLACK = 64 << 10  # bytes of a reply beside its probabilities
_PER_PROBABILITY = 64  # bytes, in JSON at most
_READ = 128  # bytes of memory for one, while JSON is read


class ServerReply(NamedTuple):
    """An answer, and the bytes of the bodies that travelled for it (without the one look at the metadata)."""

    probabilities: Float32[ndarray, "m C"]
    sent: int
    received: int


class InferenceServer:
    """One server as a neighbour. Several threads may ask at the same time; close it in the end."""

    def __init__(self, settings: NeighbourSettings, ours: InputSettings) -> None:
        self._ours, self._input, self._output = ours, settings.input or ours.name, settings.output
        self._columns = _columns(settings, ours)
        self._model, self._server = _paths(settings)
        token = settings.token and read_token(settings.token, f"neighbour {settings.name}: token")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.connection_from_url(str(settings.url), maxsize=_CONNECTIONS, retries=False)
        self._pool.ConnectionCls = type("InTime", (self._pool.ConnectionCls,), {"response_class": _InTime})
        self._takes_bytes: bool | None = None  # none: the metadata have not been seen yet

    def ask(self, x: Shaped[ndarray, "m *s"], timeout: float) -> ServerReply:
        """Its answer within the deadline. Raises `RefusedError` or `NoAnswerError`.

        The system's look-up of a name, and a second address behind it, are not part of the deadline.
        """
        deadline = time.monotonic() + timeout
        if self._takes_bytes is None:
            self._takes_bytes = self._look(time.monotonic() + timeout / 2)
        binary = bool(self._takes_bytes)
        dtype = "float32" if self._ours.dtype == "float16" and not binary else self._ours.dtype  # for JSON
        wanted = {"name": self._output} | ({"parameters": {"binary_data": True}} if binary else {})
        try:
            inputs = [Tensor(self._input, x.astype(dtype, copy=False), binary)]
            parts, headers = write_message({"outputs": [wanted]}, inputs, "inputs")
        except LNTrustError as error:
            raise RefusedError(f"cannot be asked: {error}") from None
        body, path = b"".join(parts), f"{self._model}/infer"
        most = _SLACK + _PER_PROBABILITY * len(x) * len(self._columns)
        status, about, answer = self._exchange("POST", path, deadline, most, body, headers)
        if status != 200:
            raise RefusedError(f"HTTP {status}: {_reason(answer)}")
        try:
            p = self._probabilities(answer, about, len(x))
        except LNTrustError as error:
            raise RefusedError(f"its answer cannot be used: {readable(str(error))}") from None
        return ServerReply(p, len(body), len(answer))

    def ready(self, timeout: float) -> bool:
        """Whether its model can be asked, as it says itself."""
        with suppress(NoAnswerError, RefusedError):
            status, *_ = self._exchange("GET", f"{self._model}/ready", time.monotonic() + timeout, _SLACK)
            return status == 200
        return False

    def close(self) -> None:
        self._pool.close()

    def _probabilities(self, body: bytes, headers: Mapping[str, str], m: int) -> Float32[ndarray, "m C"]:
        """The output asked for, its columns in our order; numbers are as they are."""
        head, tail = split(body, headers, max(2 * JSON_MEMORY, _READ * m * len(self._columns)))
        outputs = {each.name: each.array for each in read_tensors(head, tail, "outputs")}
        if self._output not in outputs:
            raise LNTrustError(f"output {self._output!r} is not among {list(outputs)}")
        p: Float[ndarray, "m C"] = outputs[self._output]
        if p.dtype.kind != "f" or p.shape != (m, len(self._columns)):
            wanted = f"must be floating-point numbers of shape {[m, len(self._columns)]}"
            raise LNTrustError(f"output {self._output!r} is {p.dtype} of shape {list(p.shape)}; {wanted}")
        with np.errstate(over="ignore"):
            return p[:, self._columns].astype(np.float32)

    def _look(self, deadline: float) -> bool | None:
        """Whether it takes bytes, by its metadata; none: it did not say, and may be asked another time."""
        try:
            status, _, body = self._exchange("GET", self._server, deadline, _SLACK)
            extensions = json.loads(body)["extensions"] if status == 200 else []
        except NoAnswerError:
            return None
        except (RefusedError, ValueError, RecursionError, LookupError, TypeError):
            return False
        return None if status >= 500 else isinstance(extensions, list) and "binary_tensor_data" in extensions

    def _exchange(
        self, method: str, path: str, deadline: float, most: int, body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:  # fmt: skip
        """A reply's status, headers, and body of at most so many bytes; redirections are not followed."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoAnswerError("no answer in time")
        try:
            response = self._pool.urlopen(
                method, path, body, {**self._headers, **(headers or {})}, retries=False, redirect=False,
                timeout=urllib3.Timeout(total=left), preload_content=False, decode_content=False,
            )  # fmt: skip
            with closing(response):  # a connection whose reply was read whole is back in the pool by then
                data = _read(response, most + 1)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            why = "not in time" if time.monotonic() >= deadline - 0.001 else readable(str(error))
            raise NoAnswerError(f"no answer: {why}") from None
        if len(data) > most:
            raise RefusedError(f"its answer has more than {most} bytes")
        return response.status, response.headers, data


def _read(response: Any, most: int) -> bytes:
    """The body, or so much of it. Where it was cut short, the last read, of nothing, is an error."""
    data = bytearray()
    while len(data) < most and (piece := response.read(most - len(data))):
        data += piece
    return bytes(data)


class _InTime(HTTPResponse):
    """A response whose every part, status line to last byte, comes within the socket's timeout, all together.

    By itself a socket starts to count anew with each byte, so that a server that drips would never be late.
    """

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Until(sock, self.fp.detach()))


class _Until(io.RawIOBase):
    """What a socket receives, until its timeout is over."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._sock, self._raw = sock, raw
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("not in time")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _columns(settings: NeighbourSettings, ours: InputSettings) -> list[int]:
    """Where each of our classes stands among the neighbour's."""
    theirs = list(ours.classes if settings.classes is None else settings.classes)
    missing, more = Counter(ours.classes) - Counter(theirs), Counter(theirs) - Counter(ours.classes)
    if missing or more:
        found = f"missing are {list(missing)}, and too many {list(more)}"
        raise LNTrustError(f"neighbour {settings.name}: classes must be ours, in any order; {found}")
    return [theirs.index(each) for each in ours.classes]


def _paths(settings: NeighbourSettings) -> tuple[str, str]:
    """The paths of the model and of the server's metadata."""
    found = re.fullmatch(
        r"(?i:https?)://[^/?#@:][^/?#@]*(([^?#]*/v2)/models/[^?#]*[^?#/])/*", str(settings.url)
    )
    if found is None:
        wanted = "must look like http://host:port/v2/models/MODEL, and nothing after it"
        raise LNTrustError(f"neighbour {settings.name}: url = {settings.url!r}: {wanted}")
    return found[1], found[2]


def _reason(body: bytes) -> str:
    """What an error says: the protocol's field, or else the end of the text, where tracebacks name it."""
    try:
        return readable(str(json.loads(body)["error"]))
    except (ValueError, RecursionError, LookupError, TypeError):
        return readable(body[-300:].decode("utf-8", "replace").strip()) or "no reason given"
