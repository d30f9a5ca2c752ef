"""A node's state on disk: whole, its own, and readable by its owner only."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from fleets import SOON, Fleet
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_tensors, write_tensors
from lntrust.fleet.node import Node
from lntrust.fleet.settings import load_node
from lntrust.fleet.training.state import FILE, Kept, read_state, take_state, write_state

KEPT = Kept("a", 3, 12, ["b", "c"], {"b": 4}, "0123", {"retries": {"b": 1}}, "2026-01-01T00:00:00+00:00")
TENSORS = {"method/closed": torch.arange(6.0).view(2, 3), "population/steps": torch.tensor([5])}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a
    )


def test_there_is_none_before_the_first() -> None:
    assert read_state(Path("nowhere"), "a") is None


names = st.text("abcäöü/.-", min_size=1, max_size=8)


@given(
    st.builds(
        Kept, st.just("a"), st.integers(0, 2**40), st.integers(0, 2**40), st.lists(names),
        st.dictionaries(names, st.integers(0, 2**40)), names,
        st.dictionaries(names, st.dictionaries(names, st.integers())),
    ),
    st.dictionaries(names, st.lists(st.integers(-(2**62), 2**62)).map(torch.tensor), max_size=4),
)  # fmt: skip
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, kept: Kept, tensors: dict[str, Tensor]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "state"
    write_state(folder, kept, tensors)
    found = read_state(folder, "a")
    assert found is not None
    assert found[0] == kept
    assert same(found[1], tensors)
    assert [path.name for path in folder.iterdir()] == [FILE], "no temporary is left"


def test_it_is_the_owners_alone(tmp_path: Path) -> None:
    for _ in range(2):
        write_state(tmp_path, KEPT, TENSORS)
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_state(tmp_path, KEPT, TENSORS)
    before = (tmp_path / FILE).read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(LNTrustError, match=r"cannot write .*No space left on device; nothing was left"):
        write_state(tmp_path, KEPT, {"x": torch.zeros(1000)})
    assert (tmp_path / FILE).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_anothers_is_refused_by_name(tmp_path: Path) -> None:
    write_state(tmp_path, KEPT, TENSORS)
    with pytest.raises(LNTrustError, match=r"is the state of a, not of b; life\.state names the folder"):
        read_state(tmp_path, "b")


def rewritten(folder: Path, change: Any) -> None:
    """The node's own file, with other text in it."""
    write_state(folder, KEPT, TENSORS)
    tensors, metadata = read_tensors(folder / FILE)
    write_tensors(folder / FILE, tensors, change(metadata))


def field(name: str, value: Any) -> Any:
    return lambda m: {"node": json.dumps({**json.loads(m["node"]), name: value})}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: {"node": json.dumps({**json.loads(m["node"]), "schema": 99})}, "has schema 99; this "),
        (field("more", 1), "has more, which this lntrust does not know: another version's state; go on with"),
        (lambda m: {"node": "{"}, "is no node's state"),
        (lambda m: {"node": "[]"}, "is no node's state"),
        (lambda m: {"node": '{"schema": 1}'}, "is no node's state"),
        (lambda m: {"other": ""}, "is no node's state: 'node'; remove it to start over"),
        (field("done", "three"), "is no node's state: done = 'three': Input should be a valid integer"),
        (field("done", -1), "is no node's state: done = -1: Input should be greater than or equal to 0"),
        (field("done", True), "is no node's state: done = True: Input should be a valid integer"),
        (field("version", 1.5), "is no node's state: version = 1.5: Input should be a valid integer"),
        (field("neighbours", "bc"), "is no node's state: neighbours = 'bc': Input should be a valid array"),
        (field("neighbours", [1]), "is no node's state: neighbours.0 = 1: Input should be a valid string"),
        (field("probed", {"b": "4"}), "is no node's state: probed.b = '4': Input should be a valid integer"),
        (field("counters", {"retries": 1}), "is no node's state: counters.retries = 1: Input should be a"),
        (field("name", None), "is no node's state: name = None: Input should be a valid string"),
    ],
)
def test_what_is_no_nodes_state(tmp_path: Path, change: Any, message: str) -> None:
    rewritten(tmp_path, change)
    with pytest.raises(LNTrustError, match=re.escape(f"{tmp_path / FILE}: {message}")):
        read_state(tmp_path, "a")


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.99])
def test_half_a_file_is_named(tmp_path: Path, part: float) -> None:
    write_state(tmp_path, KEPT, TENSORS)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(LNTrustError, match=re.escape(str(tmp_path / FILE)) + ".*remove it to start over"):
        read_state(tmp_path, "a")


# -- a node that starts -------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.99])
def test_half_a_file_is_put_aside(tmp_path: Path, part: float) -> None:
    """Again and again, and none of them is lost."""
    torn = []
    for number in (1, 2):
        write_state(tmp_path, KEPT, {"x": torch.full((40,), number)})
        whole = (tmp_path / FILE).read_bytes()
        torn.append(whole[: int(part * len(whole))])
        (tmp_path / FILE).write_bytes(torn[-1])
        assert take_state(tmp_path, "a") == (None, str(tmp_path / f"{FILE}.torn-{number}"))
        assert take_state(tmp_path, "a") == (None, None), "there is nothing left in its way"
    assert [(tmp_path / f"{FILE}.torn-{n}").read_bytes() for n in (1, 2)] == torn


def test_one_of_wrong_fields_is_put_aside(tmp_path: Path) -> None:
    rewritten(tmp_path, field("done", "three"))
    assert take_state(tmp_path, "a") == (None, str(tmp_path / f"{FILE}.torn-1"))


@pytest.mark.parametrize(
    ("change", "name", "message"),
    [
        (field("schema", 99), "a", "has schema 99"),
        (field("more", 1), "a", "has more, which this lntrust does not know"),
        (field("schema", 1), "b", "is the state of a"),
    ],
)
def test_one_of_another_version_or_node_stays_where_it_is(
    tmp_path: Path, change: Any, name: str, message: str
) -> None:
    rewritten(tmp_path, change)
    with pytest.raises(LNTrustError, match=message):
        take_state(tmp_path, name)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("name", ["ledger/probe/query", "method/closed votes"])
def test_tensors_that_do_not_fit_are_no_bug(tmp_path: Path, name: str) -> None:
    fleet = Fleet.of(tmp_path, "ab", everybody=SOON)
    folder = fleet.members["a"].folder
    with Node.from_file(folder, train=False) as node:
        node._life.save()
    tensors, metadata = read_tensors(folder / "state" / FILE)
    write_tensors(folder / "state" / FILE, {**tensors, name: torch.zeros(1)}, metadata)
    with pytest.raises(LNTrustError, match=r"state: holds another model's state .*; move it away, or set"):
        Node(load_node(folder))


def test_a_node_comes_up_although_its_state_is_torn(tmp_path: Path) -> None:
    """It begins anew, says so, and what was left of the state is still there."""
    with Fleet.of(tmp_path, "a") as fleet:
        fleet.start("a")
        fleet.until("a", lambda status: status["saved"]["round"] is not None)
        fleet.kill("a")
        state = fleet.members["a"].state
        half = state.read_bytes()[:200]
        state.write_bytes(half)
        fleet.start("a")
        status = fleet.until("a", lambda status: status["saved"]["round"] is not None)
        aside = state.with_name(f"{FILE}.torn-1")
        assert status["saved"]["torn"] == str(aside)
        assert aside.read_bytes() == half
        lines = fleet.members["a"].log.read_text("utf-8").splitlines()
        (told,) = [line for line in lines if '"event": "state cannot be read"' in line]
        assert "remove it" not in told, "it is out of the way"
        fleet.trains("a")
