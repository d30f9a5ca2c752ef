"""A live node's door for clients: the Open Inference Protocol v2 over HTTP, /status and /metrics.

Clients of Triton, KServe, MLServer or OpenVINO find two models: `ensemble`, the answer of all that the node
trusts, and `self`, its own. Predictions are computed in other threads, so that a slow one delays neither the
health checks nor anybody else. What a client sends, or does not read, is bounded: in bytes, in time and in
number at once.
"""

import asyncio
import hmac
import json
import logging
import socket
import threading
import time
from functools import partial
from typing import Any, get_args

import numpy as np
import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from jaxtyping import Shaped
from numpy import ndarray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lntrust import __version__
from lntrust.core.errors import LNTrustError
from lntrust.fleet.answers import Which
from lntrust.fleet.http.bounds import BoundedConnection, Bounds, FullError, Share, StreamedResponse
from lntrust.fleet.http.client import read_token
from lntrust.fleet.http.metrics import CONTENT_TYPE, exposition
from lntrust.fleet.http.tensors import DATATYPES, InferRequest, Tensor, cast, read_request, write_message
from lntrust.fleet.logs import Seldom, why
from lntrust.fleet.node import Node
from lntrust.world.data.datasets import check_finite

MODELS = get_args(Which)
OUTPUTS = ("probabilities", "label")
OPEN = ("/v2/health/live", "/v2/health/ready")  # without a token: who restarts a node has to see these
_PER_PROBABILITY = 24  # bytes in JSON, at most
_INTERNAL = "internal error; the node's log says more"


def make_app(node: Node, bounds: Bounds | None = None) -> Starlette:
    """The door as an ASGI application."""
    door = _Door(node, bounds or Bounds())
    routes = [
        Route("/v2/health/live", door.live),
        Route("/v2/health/ready", door.ready),
        Route("/v2", door.server),
        Route("/status", door.status),
        Route("/metrics", door.metrics),
    ]
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [Route(model, door.model), Route(f"{model}/ready", door.model_ready)]
        routes += [Route(f"{model}/infer", door.infer, methods=["POST"])]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refusal, Exception: door.failed})
    app.router.redirect_slashes = False
    if node.settings.http.token is not None:
        app.add_middleware(_Guard, read_token(node.settings.http.token).encode())
    return app


class HttpDoor:
    """The door, open, in a thread of its own. Close it in the end."""

    def __init__(self, node: Node, bounds: Bounds | None = None) -> None:
        app = make_app(node, bounds)
        bound = _bind(node.settings.http.listen)
        host, port = bound.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection: Any = partial(BoundedConnection, bounds=bounds or Bounds())
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, http=connection, loop="asyncio", ws="none", lifespan="off", log_config=None,
                log_level="critical",  # it would tell of every request that strangers spoil
                access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=60,
                timeout_graceful_shutdown=1,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=self._server.run, args=([bound],), name="http", daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                bound.close()
                raise LNTrustError(f"http.listen: the server on {self.address} ended at once; see the log")
            time.sleep(0.002)

    def close(self) -> None:
        """No more requests; those under way have a second to end."""
        self._server.should_exit = True
        self._thread.join(2)


def _bind(listen: str) -> socket.socket:
    """A socket there, before anything else starts: so that a port in use is told at once."""
    if listen == "off":
        raise LNTrustError("http.listen: off has no door; give it a host:port")
    host, _, port = listen.rpartition(":")
    where = (host.strip("[]"), int(port))
    try:
        if where[1] > 65535:
            raise OverflowError("there is no port beyond 65535")
        family = socket.getaddrinfo(where[0], None)[0][0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        bound = socket.create_server(where, family=family, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        hint = "give a free port of this machine, or off"
        raise LNTrustError(f"http.listen: cannot listen on {listen}: {error}; {hint}") from None
    # Who connects inherits it. With Nagle's algorithm an answer takes 40 ms more.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


class _Guard:
    """Lets nobody in without the token, except to see whether the node is well."""

    def __init__(self, app: ASGIApp, token: bytes) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        known = hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"
        error = {"error": "header Authorization: has to be 'Bearer TOKEN', with the node's token"}
        refusal = JSONResponse(error, 401, {"WWW-Authenticate": 'Bearer realm="lntrust"'})
        await (self._app if known or scope["path"] in OPEN else refusal)(scope, receive, send)


class _Door:
    """What is behind each path."""

    def __init__(self, node: Node, bounds: Bounds) -> None:
        self._node, self._bounds, self._seldom = node, bounds, Seldom()
        given = node.settings.input
        self._dtype = np.dtype(given.dtype)
        self._classes = np.array(given.classes, object)
        self._longest = max(len(json.dumps(name)) for name in given.classes) + 4  # of a label's bytes
        self._bodies, self._answers = bounds.budget(), bounds.budget()
        self._inside = asyncio.Semaphore(bounds.at_once)
        self._one = CapacityLimiter(1)  # reads at a time: values take much more memory than their text

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        if self._node.failing:  # the models are ready still, see `model_ready`
            raise HTTPException(503, "not ready: training fails, and is tried again; /status says why")
        return JSONResponse({"ready": True})

    async def server(self, request: Request) -> Response:
        extensions = ["binary_tensor_data"]
        return JSONResponse({"name": "lntrust", "version": __version__, "extensions": extensions})

    async def status(self, request: Request) -> Response:
        return JSONResponse(await run_sync(self._node.status, abandon_on_cancel=True))

    async def metrics(self, request: Request) -> Response:
        text = await run_sync(lambda: exposition(self._node.status()), abandon_on_cancel=True)
        return Response(text, media_type=CONTENT_TYPE)

    async def model(self, request: Request) -> Response:
        given = self._node.settings.input
        entry = {"name": given.name, "datatype": DATATYPES[self._dtype], "shape": [-1, *given.shape]}
        outputs = [
            {"name": "probabilities", "datatype": "FP32", "shape": [-1, len(given.classes)]},
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
        ]
        about = {"name": self._which(request), "versions": [str(self._node.version)]}
        return JSONResponse({**about, "platform": "lntrust", "inputs": [entry], "outputs": outputs})

    async def model_ready(self, request: Request) -> Response:
        return JSONResponse({"name": self._which(request), "ready": True})

    async def failed(self, request: Request, error: Exception) -> Response:
        """Nobody foresaw it; and any client may be able to cause it, as often as it likes."""
        path = request.url.path[:60]
        self._seldom.event("internal error", level=logging.ERROR, path=path, error=why(error))
        return JSONResponse({"error": _INTERNAL}, 500)

    async def infer(self, request: Request) -> Response:
        which = self._which(request)
        self._need_time()
        share = Share(self._bodies)
        try:
            body = await self._body(request, share)
            self._need_time()
            async with self._inside:
                return await self._response(request, which, body)
        except FullError:
            raise _busy("too many large requests") from None
        except asyncio.CancelledError:  # by `close`, after its second of grace
            return JSONResponse({"error": "closed: the node is stopping; ask it again later"}, 503)
        finally:
            share.release()

    async def _body(self, request: Request, share: Share) -> bytearray:
        """A request's body. One that is too large is refused as soon as that is known."""
        largest = self._node.settings.http.largest
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.strip().lower() != "identity":
            wrong = f"header Content-Encoding: {encoding[:60]!r} is not known; send it plain"
            raise HTTPException(415, wrong)
        large = f"body: larger than the {largest} bytes of http.largest; send fewer at once"
        claimed, body = request.headers.get("content-length", "0"), bytearray()
        if not claimed.isdecimal() or int(claimed) > largest:
            raise HTTPException(413, large)
        try:
            async with asyncio.timeout(self._bounds.slowest) as limit:
                share.wait_for_client(lambda: limit.reschedule(0.0))
                async for chunk in request.stream():
                    if len(body) + len(chunk) > largest:
                        raise HTTPException(413, large)
                    await share.take(len(body) + len(chunk))
                    body += chunk
        except TimeoutError:
            late = HTTPException(408, "body: not there in time; send it faster", {"Connection": "close"})
            raise late from None
        except ClientDisconnect:
            raise HTTPException(400, "body: ended before its end") from None  # nobody is there to read it
        finally:
            share.give_up = None  # from now on it is not the client who is slow
        return body

    async def _response(self, request: Request, which: Which, body: bytearray) -> Response:
        asked, x = await run_sync(self._read, body, request, abandon_on_cancel=True, limiter=self._one)
        share = Share(self._answers)
        per_probability = 4 if asked.outputs.get("probabilities") else _PER_PROBABILITY
        try:
            await share.take(len(x) * (per_probability * len(self._classes) + self._longest))
            parts, headers = await run_sync(self._answer, which, asked, x, abandon_on_cancel=True)
        except BaseException:
            share.release()
            raise
        share.wait_for_client(request.state.cut)
        return StreamedResponse(share, parts, headers)

    def _which(self, request: Request) -> Which:
        """The model that a path names; 404 if there is none, or not in that version."""
        model, version = request.path_params["model"], request.path_params.get("version")
        if model not in MODELS:
            raise HTTPException(404, f"model {model[:60]!r}: is not here; there are {', '.join(MODELS)}")
        current = str(self._node.version)
        if version not in (None, current):
            raise HTTPException(404, f"version {version[:60]!r} of {model}: is not here; there is {current}")
        return "ensemble" if model == "ensemble" else "self"

    def _need_time(self) -> None:
        if self._inside.locked():
            raise _busy(f"{self._bounds.at_once} requests")

    # -- in a thread of its own -----------------------------------------------------------------------

    def _read(self, body: bytearray, request: Request) -> tuple[InferRequest, Shaped[ndarray, "m *s"]]:
        """The request, and its one input, if it is as the settings have it."""
        given = self._node.settings.input
        most = max(1, self._bounds.probabilities // len(given.classes))
        try:
            asked = read_request(body, request.headers, OUTPUTS)
            if [tensor.name for tensor in asked.inputs] != [given.name]:
                few = [tensor.name[:60] for tensor in asked.inputs[:8]]
                raise LNTrustError(f"inputs: {few} are not what is needed: exactly one, {given.name!r}")
            x, where = cast(asked.inputs[0], self._dtype), f"input {given.name!r}"
            if x.shape[1:] != given.shape or not x.shape or not x.shape[0]:
                needed = f"[{', '.join(map(str, ('m', *given.shape)))}], m at least 1"
                raise LNTrustError(f"{where}: shape {list(x.shape)} is not what is needed: {needed}")
            if len(x) > most:
                raise LNTrustError(f"{where}: {len(x)} examples are too many; send {most} at once")
            check_finite(where, x)
        except LNTrustError as error:
            raise HTTPException(400, str(error)) from None
        return asked, x

    def _answer(
        self, which: Which, asked: InferRequest, x: Shaped[ndarray, "m *s"]
    ) -> tuple[list[bytes], dict[str, str]]:
        try:
            said = self._node.predict(x, which)
            p = said.probabilities
            arrays = {"probabilities": p.astype(np.float32), "label": self._classes[p.argmax(-1)]}
            tensors = [Tensor(name, arrays[name], binary) for name, binary in asked.outputs.items()]
            version = said.versions.get(self._node.settings.name, self._node.version)
            head: dict[str, Any] = {"model_name": which, "model_version": str(version)}
            if asked.id is not None:
                head["id"] = asked.id
            head["parameters"] = {
                **{f"weight.{name}": float(weight) for name, weight in said.weights.items()},
                "answered": ",".join(said.weights),
                **{f"silent.{name}": why for name, why in said.silent.items()},
            }
            return write_message(head, tensors, "outputs")
        except LNTrustError as error:
            raise HTTPException(400, str(error)) from None
        except Exception as error:  # the model is the user's, and may fail in any way
            self._seldom.event("no answer to a client", level=logging.ERROR, model=which, error=why(error))
            raise HTTPException(500, _INTERNAL) from None


def _busy(what: str) -> HTTPException:
    return HTTPException(503, f"busy: {what} are under way; try again", {"Retry-After": "1"})


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text, headers = error.detail, dict(error.headers or {})
    if error.status_code == 404 and "model" not in request.path_params:
        text = f"path {request.url.path[:60]!r}: is not here; there are /v2, /v2/models/ensemble, /status"
    if error.status_code == 405:
        text = f"method {request.method[:20]} does not do here; {headers.get('Allow', 'another')} would"
    return JSONResponse({"error": text}, error.status_code, headers)
