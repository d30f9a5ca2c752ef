"""Runs read from folders and from one file of many: the same runs, each of them once."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stopped_runs import LINEAR

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.experiment.store import Record, key_of, read_runs, write_collection
from lntrust.learners.views import Views


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, small: Any, views: Views) -> Path:
    """Two methods with two seeds, and one more setting."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("independent", "lntrust"):
        for seed in (0, 1):
            Run(small(LINEAR), method, seed, views, folder=folder)()
    Run(small(LINEAR, "methods.lntrust.top_k=1"), "lntrust", 0, views, folder=folder)()
    return folder


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs, tmp_path / "runs"))


def same(ours: list[Record], theirs: list[Record]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.identity, a.summary, a.world) == (b.identity, b.summary, b.world)
        assert a.tables.keys() == b.tables.keys()
        assert all(table.equals(b.tables[name]) for name, table in a.tables.items())


def test_every_finished_run_at_any_depth(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = read_runs([runs])
    assert [r.method for r in records] == ["independent"] * 2 + ["lntrust"] * 3
    assert {r.study for r in records} == {"digits"}
    assert sorted(r.seed for r in records) == [0, 0, 0, 1, 1]
    monkeypatch.chdir(runs / "digits")
    assert len(read_runs([Path("lntrust")])) == 3
    (folder,) = (runs / "digits" / "lntrust").glob("seed-1-*")
    monkeypatch.chdir(folder)
    (one,) = read_runs([Path()])
    assert one.summary == json.loads((folder / "summary.json").read_text())
    assert one.identity == json.loads((folder / "run.json").read_text())
    assert one.tables.keys() == {"rounds", "trust", "features"}
    assert one.rounds.equals(pq.read_table(folder / "rounds.parquet"))
    assert one.rounds["round"].to_pylist() == [1, 2, 3]


def test_a_collection_is_what_the_folders_were(runs: Path, tmp_path: Path) -> None:
    before = read_runs([runs])
    write_collection(before, tmp_path / "all.parquet")
    after = read_runs([tmp_path / "all.parquet"])
    write_collection(after, tmp_path / "again.parquet")
    same(before, after)
    same(before, read_runs([tmp_path / "again.parquet"]))


def test_folders_and_collections_together_hold_each_run_once(runs: Path, tmp_path: Path) -> None:
    everything = read_runs([runs])
    write_collection(everything[:3], tmp_path / "some.parquet")
    write_collection(everything[2:], tmp_path / "others.parquet")
    paths = [tmp_path / "some.parquet", runs / "digits" / "lntrust", tmp_path / "others.parquet", runs]
    for order in (paths, paths[::-1], [runs, runs]):
        same(everything, read_runs(order))


def test_of_a_run_made_again_the_later_one_counts_and_not_the_one_collected_before(copy: Path) -> None:
    write_collection(read_runs([copy]), copy / "all.parquet")
    (folder,) = (copy / "digits" / "lntrust").glob("seed-1-*")
    anew = {**json.loads((folder / "summary.json").read_text()), "test": 0.123}
    (folder / "summary.json").write_text(json.dumps(anew))
    found = read_runs([copy])
    assert len(found) == 5
    assert [r.summary for r in found if (r.method, r.seed) == ("lntrust", 1)] == [anew]
    (copy / "all.parquet").unlink()
    (folder / "summary.json").unlink()
    assert len(read_runs([copy])) == 4, "what is not finished is not a run"


def elsewhere(record: Record, **changes: Any) -> Record:
    return Record(record.identity | changes, record.summary, record.world_text, record.tables)


def test_a_run_made_on_another_machine_is_the_same_but_devices_stand_apart(
    runs: Path, tmp_path: Path
) -> None:
    one = read_runs([runs])[0]
    other = elsewhere(one, hardware={"cpu": "another"}, versions={"torch": "0"}, backend="loop")
    assert other.key == one.key
    write_collection([one, other, elsewhere(one, device="cuda")], tmp_path / "both.parquet")
    assert [r.identity["device"] for r in read_runs([tmp_path / "both.parquet"])] == ["cpu", "cuda"]


class TestOtherDataOfTheSameName:
    """A few runs on them take nobody else's place in a table."""

    def gathered(self, runs: Path, tmp_path: Path, others: int) -> list[Record]:
        """Five runs on some data, of which two do not say so, and others with other seeds on other data."""
        mine = read_runs([runs])
        silent = [elsewhere(r, content={"schema": 2}) for r in mine[:2]]
        other = {**mine[0].identity["content"], "data": "other"}
        theirs = [elsewhere(mine[0], seed=k, content=other) for k in range(others)]
        write_collection([*silent, *mine[2:]], tmp_path / "mine.parquet")
        write_collection(theirs, tmp_path / "theirs.parquet")
        return read_runs([tmp_path / "theirs.parquet", tmp_path / "mine.parquet"])

    def test_the_usual_ones_go_without_saying(self, runs: Path, tmp_path: Path) -> None:
        """Four against three that say so and two that do not. Alone nothing is said of them."""
        found = self.gathered(runs, tmp_path, 4)
        theirs = [r for r in found if r.identity["content"].get("data") == "other"]
        mine = [r for r in found if r not in theirs]
        assert {r.key for r in mine} == {r.key for r in read_runs([runs])}
        assert [r.identity["study"]["data"].get("content") for r in theirs] == ["other"] * 4
        assert not {r.row_key for r in theirs} & {r.row_key for r in mine}
        write_collection(theirs, tmp_path / "some.parquet")
        alone = read_runs([tmp_path / "some.parquet"])
        assert not any("content" in record.identity["study"]["data"] for record in alone)

    def test_runs_that_do_not_say_go_with_those_beside_them(self, runs: Path, tmp_path: Path) -> None:
        found = self.gathered(runs, tmp_path, 6)
        named = [r.identity["study"]["data"].get("content") for r in found]
        mine = read_runs([runs])[0].identity["content"]["data"]
        assert sorted(named, key=str) == sorted([None] * 6 + [mine] * 5, key=str)

    @pytest.mark.parametrize("others", [4, 6])
    def test_collected_they_are_the_same(self, runs: Path, tmp_path: Path, others: int) -> None:
        found = self.gathered(runs, tmp_path, others)
        write_collection(found, tmp_path / "all.parquet")
        same(found, read_runs([tmp_path / "all.parquet"]))


def test_keys(runs: Path) -> None:
    records = read_runs([runs])
    assert len({record.key for record in records}) == 5
    assert len({record.row_key for record in records}) == 3, "all seeds of a setting have one"
    for record in records:
        assert record.row_key == key_of(record.identity | {"seed": None, "device": "cuda"})
        assert record.key == key_of(record.identity) != record.row_key


def test_a_world_is_stored_once(runs: Path, tmp_path: Path) -> None:
    """Many runs of one world cost what is their own."""
    one = next(record for record in read_runs([runs]) if record.method == "independent")
    noise = np.random.default_rng(0).integers(10**9, size=40_000).tolist()  # does not compress
    heavy = {**one.world, "noise": noise}
    text = json.dumps(heavy)
    many = [Record(one.identity | {"settings": {"k": k}}, one.summary, text, one.tables) for k in range(20)]
    sizes = {}
    for count in (1, 20):
        path = tmp_path / f"{count}.parquet"
        write_collection(many[:count], path)
        sizes[count] = path.stat().st_size
    assert sizes[1] > 100_000
    assert sizes[20] < 1.2 * sizes[1]
    column = pq.read_metadata(tmp_path / "20.parquet").row_group(0).column(2)
    assert column.path_in_schema == "world"
    assert column.total_uncompressed_size < 1.1 * len(text), "however far apart its runs stand in the file"
    assert all(record.world == heavy for record in read_runs([tmp_path / "20.parquet"]))


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("", None, "no finished run there"),
            ("nowhere", None, "nowhere: neither a folder with runs nor a collection"),
            ("runs.csv", "a,b\n", r"runs.csv: neither a folder"),
            ("runs.parquet", "this is text", r"runs.parquet: not a readable Parquet file"),
        ],
    )
    def test_there_are_no_runs(self, tmp_path: Path, name: str, content: str | None, words: str) -> None:
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(LNTrustError, match=words):
            read_runs([tmp_path / name])

    def test_a_table_of_a_run_is_broken_or_its_world_is_gone(self, copy: Path) -> None:
        broken = next(copy.rglob("rounds.parquet"))
        broken.write_bytes(b"")
        with pytest.raises(LNTrustError, match=f"{broken}: not a readable"):
            read_runs([copy])
        shutil.rmtree(copy / "digits" / "worlds")
        with pytest.raises(LNTrustError, match=r"its world is not described in world-.*given again"):
            read_runs([copy])

    def test_parquet_of_something_else_and_nowhere_to_write(self, runs: Path, tmp_path: Path) -> None:
        pq.write_table(pa.table({"x": [1]}), tmp_path / "file")
        other = Path(shutil.copy(tmp_path / "file", tmp_path / "x.parquet"))
        with pytest.raises(LNTrustError, match=r"no collection of runs .`lntrust collect` makes one"):
            read_runs([other])
        with pytest.raises(LNTrustError, match="cannot write"):
            write_collection(read_runs([runs]), tmp_path / "file" / "all.parquet")
