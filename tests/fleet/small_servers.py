"""Small HTTP servers that do what a test says, and neighbours that ask them."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from lntrust.fleet.http.tensors import Tensor, read_request, write_message
from lntrust.fleet.peers.inference_server import InferenceServer
from lntrust.fleet.settings import InputSettings, NeighbourSettings

OURS = InputSettings(shape=(2, 3), classes=("a", "b", "c"))
JSON = {"name": "plain", "version": "1", "extensions": []}
OK = b"HTTP/1.1 200 OK\r\n"
BYTES = {**JSON, "extensions": ["binary_tensor_data"]}


class Request(BaseHTTPRequestHandler):
    """One request to a server of a test's own, which says what to do with it."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers), b""))
        self.server.metadata(self)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), body))
        self.server.infer(self)

    def answer(self, body: Any, status: int = 200, **headers: str | None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        pass


Act = Callable[[Request], None]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, infer: Act, metadata: Act) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.infer, self.metadata = infer, metadata
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.over = threading.Event()
        self.connections = self.closed = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v2/models/m"

    def get_request(self) -> tuple[socket.socket, Any]:
        self.connections += 1
        return super().get_request()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.closed += 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error of ours."""


class Street:
    """Servers and neighbours, closed when `ends` is."""

    def __init__(self, ends: ExitStack) -> None:
        self.ends = ends

    def server(self, infer: Act, metadata: Any = JSON, tls: ssl.SSLContext | None = None) -> Server:
        tell = metadata if callable(metadata) else lambda request: request.answer(metadata)
        server = Server(infer, tell)
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
            server.url = server.url.replace("http:", "https:")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.ends.callback(server.server_close)
        self.ends.callback(server.shutdown)
        self.ends.callback(server.over.set)
        return server

    def neighbour(self, server: Server | str, ours: InputSettings = OURS, **settings: Any) -> InferenceServer:
        url = server if isinstance(server, str) else server.url
        made = InferenceServer(NeighbourSettings(name="them", url=url, **settings), ours)
        self.ends.callback(made.close)
        return made


# -- what they do ---------------------------------------------------------------------------------------


def model(x: np.ndarray) -> np.ndarray:
    """Probabilities of a, b and c that tell inputs and classes apart."""
    powers = np.exp(np.stack([x.sum((1, 2)), x[:, 0, 1], 2 * x[:, 1, 2]], 1).astype(np.float64))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def answer_with(request: Request, predict: Callable[[np.ndarray], np.ndarray]) -> None:
    """In JSON or in bytes, as it is asked."""
    _, headers, body = request.server.seen[-1]
    asked = read_request(body, headers, ["probabilities"])
    (tensor,) = asked.inputs
    output = Tensor("probabilities", predict(tensor.array), asked.outputs["probabilities"])
    parts, said = write_message({"model_name": "m"}, [output], "outputs")
    request.answer(b"".join(parts), **said)


def good(request: Request) -> None:
    """A server as it should be."""
    answer_with(request, model)


def says(outputs: Any, status: int = 200) -> Act:
    return lambda request: request.answer({"outputs": outputs}, status)


def output(shape: Any = (4, 3), data: Any = None, **changes: Any) -> dict[str, Any]:
    values = [1 / 3] * 12 if data is None else data
    return {"name": "probabilities", "datatype": "FP32", "shape": list(shape), "data": values, **changes}


def hang(request: Request) -> None:
    request.server.over.wait(60)


def sends(data: Callable[[], bytes]) -> Act:
    """A server that sends these bytes, and closes the connection."""

    def send(request: Request) -> None:
        request.wfile.write(data())
        request.close_connection = True

    return send


def drips(head: bytes, drop: bytes) -> Act:
    """A server that begins, and then sends a little at a time, never silent for long; for a minute."""

    def drip(request: Request) -> None:
        request.wfile.write(head)
        end = time.monotonic() + 60
        while not request.server.over.wait(0.05) and time.monotonic() < end:
            request.wfile.write(drop)

    return drip
