"""Files appear whole or not at all."""

import stat
from pathlib import Path

import pytest
import torch

from lntrust import LNTrustError
from lntrust.core.files import clear, read_json, read_tensors, write_json, write_tensors, write_whole


class TestWriteWhole:
    @pytest.mark.parametrize("there", [True, False])
    def test_nobody_sees_a_part(self, tmp_path: Path, there: bool) -> None:
        path = tmp_path / "a" / "b" / "file.txt"
        if there:
            path.parent.mkdir(parents=True)
            path.write_text("old")

        def write(temporary: Path) -> None:
            temporary.write_text("half of ")
            assert (path.read_text() if path.exists() else None) == ("old" if there else None)
            temporary.write_text("all")

        write_whole(path, write)
        assert path.read_text() == "all"
        assert list(path.parent.iterdir()) == [path]
        assert stat.S_IMODE(path.stat().st_mode) == 0o644

    @pytest.mark.parametrize(
        ("error", "kind", "says"),
        [(KeyError("no more"), KeyError, "no more"),
         (OSError(28, "No space left on device"), LNTrustError, r"cannot write .*/file\.txt: No space left")],
    )  # fmt: skip
    def test_a_writer_that_fails_leaves_what_was_there(
        self, tmp_path: Path, error: Exception, kind: type[Exception], says: str
    ) -> None:
        def write(temporary: Path) -> None:
            temporary.write_text("half of ")
            raise error

        path = tmp_path / "file.txt"
        for there in ([], [path]):
            with pytest.raises(kind, match=says):
                write_whole(path, write)
            assert list(tmp_path.iterdir()) == there
            path.write_text("old")
        assert path.read_text() == "old"


class TestTensors:
    def test_a_round_trip(self, tmp_path: Path) -> None:
        """A method may keep a tensor under two names, or the rows of one."""
        one = torch.arange(6).view(2, 3)
        tensors = {
            "a": torch.randn(3, 4, dtype=torch.float64),
            "b": torch.tensor([], dtype=torch.int64),
            "c": torch.tensor([float("nan"), float("inf")]),
            "one": one,
            "again": one,
            "row": one[1],
            "turned": one.T,
        }
        write_tensors(tmp_path / "t.safetensors", tensors, {"round": "3"})
        back, metadata = read_tensors(tmp_path / "t.safetensors")
        assert metadata == {"round": "3"}
        assert set(back) == set(tensors)
        for name, tensor in tensors.items():
            assert back[name].dtype == tensor.dtype
            assert torch.equal(back[name].nan_to_num(7.0), tensor.nan_to_num(7.0))

    @pytest.mark.parametrize("text", [b"", b"\xff" * 100, b'{"a": 1}'])
    def test_what_is_no_such_file_is_named(self, tmp_path: Path, text: bytes) -> None:
        path = tmp_path / "t.safetensors"
        path.write_bytes(text)
        with pytest.raises(LNTrustError, match=r"t\.safetensors: not a readable safetensors file"):
            read_tensors(path)


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []
    write_json(path, {"x": [1, None, 0.1]})
    assert read_json(path) == {"x": [1, None, 0.1]}
    path.write_text("{")
    with pytest.raises(LNTrustError, match=r"a\.json: not a readable JSON file"):
        read_json(path)


def test_clear(tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "c.txt"):
        (tmp_path / name).touch()
    clear(tmp_path, "*.json", "nothing")
    assert [file.name for file in tmp_path.iterdir()] == ["c.txt"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(LNTrustError, match=r"cannot clear .* for a fresh run"):
        clear(tmp_path, "folder")
