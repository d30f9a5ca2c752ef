"""`lntrust figures`."""

from pathlib import Path
from typing import Any

import pytest

from lntrust.experiment.store import read_runs, write_collection


@pytest.fixture
def runs(tiny_file: Path, tmp_path: Path, lntrust: Any) -> Path:
    folder = tmp_path / "runs"
    ran = lntrust(
        "run", tiny_file, "--seed", "0", "--out", folder,
        "--method", "independent", "--method", "d_psgd", "--method", "lntrust",
        "--method", "lntrust+lean",
    )  # fmt: skip
    assert ran.code == 0
    return folder


def test_figures(runs: Path, tmp_path: Path, lntrust: Any) -> None:
    done = lntrust("figures", runs, "-o", tmp_path / "new" / "figures")
    assert done.code == 0
    paths = [Path(line) for line in done.out.splitlines()]
    assert sorted(paths) == sorted((tmp_path / "new" / "figures").iterdir())
    assert {path.name for path in paths} == {
        f"tiny-{kind}.{suffix}"
        for kind in ("curves", "bytes", "communication", "importance", "trust", "topology")
        for suffix in ("png", "pdf")
    }
    # A collection of the same runs gives the same files; here of one kind.
    write_collection(read_runs([runs]), tmp_path / "all.parquet")
    again = lntrust("figures", tmp_path / "all.parquet", "--out", tmp_path / "again", "--format", "png")
    assert again.code == 0
    made = sorted((tmp_path / "again").iterdir())
    assert [path.suffix for path in made] == [".png"] * 6
    for path in made:
        assert path.read_bytes() == (tmp_path / "new" / "figures" / path.name).read_bytes()


def test_one_line_errors(tmp_path: Path, lntrust: Any) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for runs, out, message in (
        ("empty", "new", "empty: no finished run there"),
        ("absent", "new", "absent: neither a folder with runs nor a collection"),
        ("empty", "file", "file: is a file; must be a folder, or a name for a new one"),
    ):
        failed = lntrust("figures", tmp_path / runs, "-o", tmp_path / out)
        assert failed.code != 0
        assert message in " ".join(failed.err.split())
        assert "Traceback" not in failed.err
    assert not (tmp_path / "new").exists()
