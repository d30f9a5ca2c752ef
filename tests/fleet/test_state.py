"""A node's state on disk: whole, its own, and readable by its owner only."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lntrust.errors import LNTrustError
from lntrust.experiment.files import read_tensors, write_tensors
from lntrust.fleet.state import FILE, Kept, read_state, write_state

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
        st.dictionaries(names, st.integers(0, 2**40)), names, st.dictionaries(names, st.integers()),
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: {"node": json.dumps({**json.loads(m["node"]), "schema": 99})}, "has schema 99; this "),
        (lambda m: {"node": json.dumps({**json.loads(m["node"]), "more": 1})}, "is no node's state"),
        (lambda m: {"node": "{"}, "is no node's state"),
        (lambda m: {"node": "[]"}, "is no node's state"),
        (lambda m: {"node": '{"schema": 1}'}, "is no node's state"),
        (lambda m: {"other": ""}, "is no node's state: 'node'; remove it to start over"),
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
