"""What the command line asks of a running node, through a real door."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fleets import free_port
from http_service import CLASSES, STATUS, Node, X, settings
from small_servers import Street, good

from lntrust.core.errors import LNTrustError
from lntrust.fleet.answers import Which
from lntrust.fleet.http.client import Client, read_inputs
from lntrust.fleet.operations.init import write_node
from lntrust.fleet.settings import DTYPES, NodeSettings

Served = Callable[[Node], Client]


def at(settings: NodeSettings, address: str) -> Client:
    """A client of the node with these settings that listens there."""
    return Client(settings.model_copy(update={"http": settings.http.model_copy(update={"listen": address})}))


@pytest.fixture
def served(opened: Callable[..., str]) -> Served:
    return lambda node: at(node.settings, opened(node))


def test_status_and_answers_are_the_nodes_own(served: Served) -> None:
    node = Node()
    node.silent = {"b": "shape is [1, 4] here, and [4] there", "c.2": "left alone, after failures"}
    client = served(node)
    assert client.status() == STATUS
    for which in get_args(Which):
        expected, got = node.predict(X, which), client.predict(X, which)
        np.testing.assert_allclose(got["probabilities"], expected.probabilities, rtol=1e-6)
        assert got["label"] == [CLASSES[c] for c in expected.probabilities.argmax(1)]
        assert got["weights"] == expected.weights
        assert got["silent"] == [f"{name}: {why}" for name, why in expected.silent.items()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_of_every_dtype_reach_the_node(served: Served, dtype: str) -> None:
    node = Node(input={"dtype": dtype})
    x = (np.arange(8).reshape(2, 2, 2) % 3 / (4 if "float" in dtype else 1)).astype(dtype)
    served(node).predict(x)
    assert node.seen[0].dtype == np.dtype(dtype)
    np.testing.assert_array_equal(node.seen[0], x)


def test_the_token_in_the_settings_is_shown(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "token.txt"
    file.write_text("s3cret\n", "utf-8")
    client = served(Node(token=file))
    assert client.status() == STATUS
    assert client.predict(X)["label"]
    file.write_text("other\n", "utf-8")
    with pytest.raises(LNTrustError, match=r"node a: 401: .*Bearer"):
        client.status()


def test_a_node_that_is_not_there() -> None:
    client = at(settings(), f"127.0.0.1:{free_port()}")
    for ask in (client.status, lambda: client.predict(X)):
        with pytest.raises(LNTrustError, match=r"node a: no answer at 127\.0\.0\.1:\d+ .*lntrust node run"):
            ask()


def test_what_the_node_refuses_is_told(served: Served) -> None:
    client = served(Node())
    with pytest.raises(LNTrustError, match=r"node a: 400: .*shape \[5, 4\] is not what is needed"):
        client.predict(X.reshape(5, 4))
    other = Client(client.settings.model_copy(update={"name": "b"}))
    with pytest.raises(LNTrustError, match="is the door of a, not of b; nodes on one machine need different"):
        other.status()


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1]", b'"x"', b"", b"\xff"])
@pytest.mark.parametrize("code", [200, 500])
def test_a_server_that_is_no_node(street: Street, body: bytes, code: int) -> None:
    server = street.server(good, lambda request: request.answer(body, code))
    with pytest.raises(LNTrustError, match=r"not a node\?"):
        at(settings(), f"127.0.0.1:{server.server_port}").status()


def test_a_node_without_a_door(tmp_path: Path) -> None:
    write_node(tmp_path, settings(listen="off").model_dump(mode="json", exclude_unset=True))
    with pytest.raises(LNTrustError, match=r"node a: http\.listen = off"):
        Client.of(tmp_path)


# -- files ----------------------------------------------------------------------------------------


def test_inputs_from_files_of_every_kind(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", x=X, y=np.arange(5))
    (tmp_path / "x.json").write_text(json.dumps(X.tolist()), "utf-8")
    pq.write_table(pa.table({"x": X.tolist()}), tmp_path / "x.parquet")
    for kind in ("npy", "npz", "json", "parquet"):
        got = read_inputs(tmp_path / f"x.{kind}", settings())
        np.testing.assert_array_equal(got, X)
        assert got.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", b"[1, 2", "cannot be read"),
        ("x.json", b"[[[1, 2], [3]]]", "cannot be read"),
        ("x.json", b"[[1, 2]]", "inputs have shape [1, 2]; must be [m, 2, 2]"),
        ("x.json", b"{}", "inputs have shape []"),
        ("x.json", b'[[["a", "b"], ["c", "d"]]]', "must be float32"),
        ("x.npy", b"", "cannot be read"),
        ("x.npz", b"PK", "cannot be read"),
        ("x.csv", b"1,2", "must be a .npz or .parquet file"),
        ("absent.npy", None, "cannot be read"),
    ],
)
def test_files_that_hold_no_inputs(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LNTrustError, match=re.escape(message)) as caught:
        read_inputs(path, settings())
    assert str(path) in str(caught.value)
