"""A server of the Open Inference Protocol v2 as a neighbour: MLServer, Triton, KServe, or a node's own door.

It knows nothing of fleets. It is asked over HTTP for one output with class probabilities: in JSON, or in
bytes after the JSON where its metadata say that it takes them. Whatever it answers may be wrong in any way,
or come too late, or never end: the caller gets probabilities of the right shape in its own order of classes,
or one of the two errors of the door between nodes.
"""

import io
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.http.tensors import JSON_MEMORY, Tensor, read_tensors, split, write_message
from lntrust.fleet.peers.transport import LATE, NoAnswerError, RefusedError, printable
from lntrust.fleet.settings import InputSettings, NeighbourSettings

_CONNECTIONS = 4  # that are kept open
_SLACK = 64 << 10  # bytes of a reply beside its probabilities
_PER_PROBABILITY = 64  # bytes, in JSON at most
_READ = 128  # bytes of memory for one, while JSON is read
_REASON = 300  # characters of a reason that are passed on


@dataclass(frozen=True)
class ServerReply:
    """An answer, and the bytes of the bodies that travelled for it (without the one look at the metadata)."""

    probabilities: Float32[ndarray, "m C"]
    sent: int
    received: int


class _Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class InferenceServer:
    """One server as a neighbour. Several threads may ask at the same time; close it in the end."""

    def __init__(self, settings: NeighbourSettings, ours: InputSettings) -> None:
        try:
            import urllib3
        except ImportError:
            raise LNTrustError("servers to ask need the extra fleet: pip install 'lntrust[fleet]'") from None
        self._urllib3, self.name, self._ours = urllib3, settings.name, ours
        self._input, self._output = settings.input or ours.name, settings.output
        self._columns = _columns(settings, ours)
        self._model, self._server = _paths(settings)
        self._headers = _authorization(settings)
        self._pool = urllib3.connection_from_url(str(settings.url), maxsize=_CONNECTIONS, retries=False)
        kept = self._pool.ConnectionCls
        self._pool.ConnectionCls = type(kept.__name__, (kept,), {"response_class": _InTime})
        self._takes_bytes: bool | None = None  # none: the metadata have not been seen yet

    def ask(self, x: Shaped[ndarray, "m *s"], timeout: float) -> ServerReply:
        """Its answer within the deadline. Raises `RefusedError` or `NoAnswerError`.

        The system's look-up of a name, and a second address behind it, are not part of the deadline.
        """
        deadline = time.monotonic() + timeout
        if self._takes_bytes is None:
            self._takes_bytes = self._look(time.monotonic() + timeout / 2)
        body, headers = self._question(x, binary=bool(self._takes_bytes))
        most = _SLACK + _PER_PROBABILITY * len(x) * len(self._columns)
        reply = self._exchange("POST", f"{self._model}/infer", deadline, most, body, headers)
        if reply.status != 200:
            late = deadline - time.monotonic() < (1 - LATE) * timeout
            raise RefusedError(f"{self.name}: HTTP {reply.status}: {_reason(reply.body)}", late=late)
        try:
            p = self._probabilities(reply, len(x))
        except LNTrustError as error:
            raise RefusedError(f"{self.name}: its answer cannot be used: {_trimmed(str(error))}") from None
        return ServerReply(p, len(body), len(reply.body))

    def ready(self, timeout: float) -> bool:
        """Whether its model can be asked, as it says itself."""
        try:
            path = f"{self._model}/ready"
            return self._exchange("GET", path, time.monotonic() + timeout, _SLACK).status == 200
        except (NoAnswerError, RefusedError):
            return False

    def close(self) -> None:
        self._pool.close()

    def _question(self, x: Shaped[ndarray, "m *s"], binary: bool) -> tuple[bytes, dict[str, str]]:
        """The body, and the headers that belong to it. JSON has no FP16: it gets FP32."""
        small = self._ours.dtype == "float16" and not binary
        inputs = Tensor(self._input, x.astype("float32" if small else self._ours.dtype, copy=False), binary)
        wanted = {"name": self._output} | ({"parameters": {"binary_data": True}} if binary else {})
        try:
            parts, headers = write_message({"outputs": [wanted]}, [inputs], "inputs")
        except LNTrustError as error:
            raise RefusedError(f"{self.name}: cannot be asked: {error}") from None
        return b"".join(parts), headers

    def _probabilities(self, reply: _Response, m: int) -> Float32[ndarray, "m C"]:
        """The output asked for, its columns in our order; numbers are as they are."""
        memory = max(2 * JSON_MEMORY, _READ * m * len(self._columns))
        head, tail = split(reply.body, reply.headers, memory)
        outputs = {each.name: each.array for each in read_tensors(head, tail, "outputs")}
        if self._output not in outputs:
            raise LNTrustError(f"output {self._output!r} is not among {list(outputs)}")
        p: Float[ndarray, "m C"] = outputs[self._output]
        if p.dtype.kind != "f" or p.shape != (m, len(self._columns)):
            raise LNTrustError(
                f"output {self._output!r} is {p.dtype} of shape {list(p.shape)}; must be floating-point "
                f"numbers of shape {[m, len(self._columns)]}"
            )
        with np.errstate(over="ignore"):
            return p[:, self._columns].astype(np.float32)

    def _look(self, deadline: float) -> bool | None:
        """Whether it takes bytes, by its metadata; none: it did not say, and may be asked another time."""
        try:
            reply = self._exchange("GET", self._server, deadline, _SLACK)
            extensions = json.loads(reply.body)["extensions"] if reply.status == 200 else []
        except NoAnswerError:
            return None
        except (RefusedError, ValueError, RecursionError, LookupError, TypeError):
            return False
        if reply.status >= 500:
            return None
        return isinstance(extensions, list) and "binary_tensor_data" in extensions

    def _exchange(
        self, method: str, path: str, deadline: float, most: int, body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Response:  # fmt: skip
        """One request and its reply, of at most so many bytes; redirections are not followed."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoAnswerError(f"{self.name}: no answer in time")
        try:
            response = self._pool.urlopen(
                method, path, body, {**self._headers, **(headers or {})}, retries=False, redirect=False,
                timeout=self._urllib3.Timeout(total=left), preload_content=False, decode_content=False,
            )  # fmt: skip
            try:
                data = _read(response, most + 1)
            finally:
                response.close()  # a connection whose reply was read whole is back in the pool by now
        except (self._urllib3.exceptions.HTTPError, OSError) as error:
            late = time.monotonic() >= deadline - 0.001
            why = "not in time" if late else _trimmed(str(error))
            raise NoAnswerError(f"{self.name}: no answer: {why}") from None
        if len(data) > most:
            raise RefusedError(f"{self.name}: its answer has more than {most} bytes")
        return _Response(response.status, response.headers, data)


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
        self.fp.close()
        self.fp = io.BufferedReader(_Until(sock))


class _Until(io.RawIOBase):
    """What a socket receives, until its timeout is over."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        timeout = sock.gettimeout()
        assert timeout is not None
        self._sock, self._deadline = sock, time.monotonic() + timeout
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open until it is closed itself

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
    if sorted(theirs) != sorted(ours.classes):
        missing = [each for each in ours.classes if each not in theirs]
        unknown = [each for each in theirs if each not in ours.classes]
        twice = sorted({each for each in theirs if theirs.count(each) > 1})
        found = {"missing": missing, "not among ours": unknown, "more than once": twice}
        what = "; ".join(f"{name}: {', '.join(each)}" for name, each in found.items() if each)
        raise LNTrustError(f"neighbour {settings.name}: classes must be ours, in any order; {what}")
    return [theirs.index(each) for each in ours.classes]


def _paths(settings: NeighbourSettings) -> tuple[str, str]:
    """The paths of the model and of the server's metadata."""
    from urllib3.util import parse_url

    url = parse_url(str(settings.url))
    path = (url.path or "").rstrip("/")
    server, found, model = path.rpartition("/v2/models/")
    if not (found and model and url.host) or url.query or url.fragment or url.auth:
        raise LNTrustError(
            f"neighbour {settings.name}: url = {settings.url!r}: must look like "
            "http://host:port/v2/models/MODEL, and nothing after it"
        )
    return path, f"{server}/v2"


def _authorization(settings: NeighbourSettings) -> dict[str, str]:
    if settings.token is None:
        return {}
    field = f"neighbour {settings.name}: token = {str(settings.token)!r}"
    try:
        token = settings.token.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LNTrustError(f"{field}: not a readable file: {error}") from None
    if not token or not token.isprintable() or " " in token:
        raise LNTrustError(f"{field}: must hold one token without blanks")
    return {"Authorization": f"Bearer {token}"}


def _reason(body: bytes) -> str:
    """What an error says: the protocol's field, or else the end of the text, where tracebacks name it."""
    try:
        return _trimmed(str(json.loads(body)["error"]))
    except (ValueError, RecursionError, LookupError, TypeError):
        text = printable(" ".join(body.decode("utf-8", "replace").split()))
        return text[-_REASON:] or "no reason given"


def _trimmed(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= _REASON else text[:_REASON] + " …"
