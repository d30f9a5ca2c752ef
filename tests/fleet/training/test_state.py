"""A node's state on disk: whole, its own, readable by its owner only, and by every later version."""

import json
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fleets import SOON, Fleet, deployed, free_port, until

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors, write_tensors
from lntrust.fleet.node import Node
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.settings import load_node
from lntrust.fleet.training.state import FILE, NodeState, Saved, load_state, read_state, write_state
from lntrust.methods.base import below

NODE = NodeState(
    name="a",
    done=3,
    version=12,
    neighbours=["b", "c"],
    probed={"b": 4},
    data="0123",
    counters={"retries": {"b": 1}},
)
SAVED = Saved(NODE, {"method/ü": torch.arange(6.0).view(2, 3), "population/steps": torch.tensor([2**62])})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_state(tmp_path, "a") is None
    write_state(tmp_path, SAVED)
    found = read_state(tmp_path, "a")
    assert found is not None
    assert found.node == NODE
    assert found.tensors.keys() == SAVED.tensors.keys()
    for name, tensor in SAVED.tensors.items():
        torch.testing.assert_close(found.tensors[name], tensor, rtol=0, atol=0)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600, "it is the owner's alone"


def test_a_write_that_fails_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_state(tmp_path, SAVED)
    before = (tmp_path / FILE).read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(LNTrustError, match=r"cannot write .*No space left on device; nothing was left"):
        write_state(tmp_path, Saved(NODE, {"x": torch.zeros(1000)}))
    assert (tmp_path / FILE).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


# -- what cannot be read --------------------------------------------------------------------------


def rewrite(folder: Path, change: Any) -> None:
    """The node's own file, with other text in it."""
    write_state(folder, SAVED)
    tensors, metadata = read_tensors(folder / FILE)
    write_tensors(folder / FILE, tensors, change(metadata))


def field(name: str, value: Any) -> Any:
    return lambda m: {"node": json.dumps({**json.loads(m["node"]), name: value})}


TORN = [
    (lambda m: {"node": "{"}, ""),
    (lambda m: {"node": "[]"}, ""),
    (lambda m: {"node": '{"schema": 1}'}, ""),
    (lambda m: {"other": ""}, "'node'; remove it to start over"),
    (field("done", "three"), "done = 'three': Input should be a valid integer; remove it to start over"),
    (field("done", -1), "done = -1: Input should be greater than or equal to 0"),
    (field("version", 1.5), "version = 1.5: Input should be a valid integer"),
    (field("neighbours", [1]), "neighbours.0 = 1: Input should be a valid string"),
    (field("probed", {"b": "4"}), "probed.b = '4': Input should be a valid integer"),
]
OTHERS = [
    (field("schema", 99), "a", "has schema 99; this "),
    (field("more", 1), "a", "has more, which this lntrust does not know: another version's state; go on"),
    (field("schema", 1), "b", "is the state of a, not of b; life.state names the folder"),
]


@pytest.mark.parametrize(("change", "message"), TORN)
def test_what_is_no_nodes_state_is_named_and_put_aside(tmp_path: Path, change: Any, message: str) -> None:
    rewrite(tmp_path, change)
    with pytest.raises(LNTrustError, match=re.escape(f"{tmp_path / FILE}: is no node's state: {message}")):
        read_state(tmp_path, "a")
    assert load_state(tmp_path, "a") == (None, str(tmp_path / f"{FILE}.torn-1"))


@pytest.mark.parametrize(("change", "name", "message"), OTHERS)
def test_one_of_another_version_or_node_stays_where_it_is(
    tmp_path: Path, change: Any, name: str, message: str
) -> None:
    rewrite(tmp_path, change)
    with pytest.raises(LNTrustError, match=re.escape(f"{tmp_path / FILE}: {message}")):
        load_state(tmp_path, name)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.99])
def test_half_a_file_is_named_and_put_aside(tmp_path: Path, part: float) -> None:
    """Again and again, and none of them is lost."""
    torn = [tmp_path / f"{FILE}.torn-{number}" for number in (1, 2)]
    for number, aside in enumerate(torn):
        write_state(tmp_path, Saved(NODE, {"x": torch.full((40,), number)}))
        whole = (tmp_path / FILE).read_bytes()
        half = whole[: int(part * len(whole))]
        (tmp_path / FILE).write_bytes(half)
        with pytest.raises(LNTrustError, match=re.escape(str(tmp_path / FILE)) + ".*remove it to start over"):
            read_state(tmp_path, "a")
        for left in (f".{FILE}.half", ".tmpA1b2C3"):  # of a node that was killed while it wrote
            (tmp_path / left).write_bytes(b"")
        assert load_state(tmp_path, "a") == (None, str(aside))
        assert load_state(tmp_path, "a") == (None, None), "there is nothing left in its way"
        assert aside.read_bytes() == half
    assert sorted(tmp_path.iterdir()) == torn


# -- nodes that start -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ledger/probe/query", "method/open"])
def test_tensors_that_do_not_fit_are_no_bug(tmp_path: Path, name: str) -> None:
    alone = SOON | {"life": SOON["life"] | {"wait": 0.0}}
    folder = Fleet.of(tmp_path, "ab", everybody=alone).members["a"].folder
    with Node.from_file(folder) as node:
        until(node, deployed)  # it saves when it ends
    tensors, metadata = read_tensors(folder / "state" / FILE)
    write_tensors(folder / "state" / FILE, {**tensors, name: torch.zeros(1)}, metadata)
    with pytest.raises(LNTrustError, match=r"state: holds another model's state .*; move it away, or set"):
        Node(load_node(folder))


def test_a_node_comes_up_although_its_state_is_torn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It begins anew, says so, and what was left of the state is still there."""
    member = Fleet.of(tmp_path, "a", everybody=SOON).members["a"]
    write_state(member.state.parent, SAVED)
    half, aside = member.state.read_bytes()[:200], member.state.with_name(f"{FILE}.torn-1")
    member.state.write_bytes(half)
    with Node.from_file(member.folder) as node:
        assert until(node, deployed)["saved"]["torn"] == str(aside)
    assert aside.read_bytes() == half
    (record,) = (each for each in caplog.records if each.message == "state cannot be read")
    assert "remove it" not in record.__dict__["fields"]["error"], "it is out of the way"


# -- made by revision 3123855 -----------------------------------------------------------------------

OLD = Path(__file__).parents[2] / "fixtures" / "made_by_3123855" / "state"
EXPECTED = json.loads((OLD / "expected.json").read_text("utf-8"))


def brought(case: str, root: Path) -> Path:
    """The folder of such a node, with certificates and ports of today."""
    name, state = case.split(",")[0].split("/")
    folder = Path(shutil.copytree(OLD / name, root / name))
    if state != "state":
        shutil.rmtree(folder / "state")
        (folder / state).rename(folder / "state")
    authority = Authority.open(root / "certificates")
    authority.issue(name, ["127.0.0.1"])
    shutil.copytree(authority.folder / name, folder, dirs_exist_ok=True)
    text = (folder / "NODE.toml").read_text("utf-8")
    if case.endswith("not in later versions"):
        text = text.partition("# Not in later versions.")[0]
    text = re.sub(r"127\.0\.0\.1:744\d", lambda _: f"127.0.0.1:{free_port()}", text)
    (folder / "NODE.toml").write_text(text, "utf-8")
    return folder


@pytest.mark.parametrize("case", [case for case in EXPECTED if case != "c/state"])
def test_a_node_goes_on_from_an_older_versions_state(case: str, tmp_path: Path) -> None:
    """Rounds, version, trust, its own model's answers, and all that it has counted."""
    folder, was = brought(case, tmp_path), EXPECTED[case]
    node = Node(load_node(folder))  # it does not train
    try:
        status = node.status()
        own = node.predict(np.load(folder / "test.npz")["x"], "self").probabilities
    finally:
        node.close()
    assert status["saved"]["round"] == was["saved_round"]
    for name, each in was["status"]["neighbours"].items():
        status["neighbours"][name] = {field: status["neighbours"][name][field] for field in each}
    assert {field: status[field] for field in was["status"]} == was["status"]
    np.testing.assert_allclose(own, was["self"], atol=1e-6)
    tensors, _ = read_tensors(folder / "state" / FILE)
    assert {name: t.tolist() for name, t in below("ledger/", tensors).items()} == was["ledger"]
