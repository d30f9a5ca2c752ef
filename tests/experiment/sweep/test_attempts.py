"""Attempts: each number is taken once, and the highest owns the run."""

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from stopped_runs import Make, list_attempts, timeless

from lntrust import LNTrustError
from lntrust.experiment.sweep.attempts import Superseded, claim


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Everything in a folder, with the time it was written."""
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


def test_numbers_follow_each_other_and_the_newest_owns_the_run(tmp_path: Path) -> None:
    first, second, third = (claim(tmp_path / "run", resumed=r) for r in (0, 4, 9))
    assert [first.number, second.number, third.number] == [1, 2, 3]
    for older, newer in ((first, 2), (second, 3)):
        with pytest.raises(Superseded, match=f"attempt {older.number} stops, since attempt-{newer}"):
            older.check()
    third.check()
    all_ = list_attempts(tmp_path / "run")
    assert [(a["number"], a["resumed"]) for a in all_] == [(1, 0), (2, 4), (3, 9)]
    assert {a["pid"] for a in all_} == {os.getpid()}
    assert {"host", "started"} < set(all_[0])


def claim_many(folder: Path, start: Any, taken: Any) -> None:
    start.wait()
    taken.send_bytes(json.dumps([claim(folder).number for _ in range(15)]).encode())


def test_processes_that_claim_at_once_never_get_the_same_number(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # they need no more than is imported here
    start = context.Barrier(3)
    children, ends = [], []
    for _ in range(3):
        here, there = context.Pipe(duplex=False)
        children.append(context.Process(target=claim_many, args=(tmp_path, start, there)))
        ends.append(here)
    for child in children:
        child.start()
    taken = [json.loads(end.recv_bytes()) for end in ends]
    for child in children:
        child.join()
    assert sorted(number for numbers in taken for number in numbers) == list(range(1, 46))
    assert all(numbers == sorted(numbers) for numbers in taken)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"attempt-{n}.json" for n in range(1, 46))
    assert {a["pid"] for a in list_attempts(tmp_path)} == {child.pid for child in children}


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LNTrustError, match=r"cannot write .*file/run: "):
        claim(tmp_path / "file" / "run")


@pytest.mark.parametrize("met", [0, 2, 3, 5])
def test_an_older_attempt_that_meets_a_newer_one_stops_and_writes_nothing(
    make: Make, tmp_path: Path, met: int
) -> None:
    """Whatever the round after which the newer one begins."""
    one = make(into="", guard=lambda: older.check())
    older = claim(one.folders[0])
    before = {}

    def progress(done: int, *_: object) -> None:
        if done == met:
            claim(older.folder)
            before.update(contents(tmp_path))

    with pytest.raises(Superseded, match=r"attempt 1 stops, since attempt-2\.json is newer"):
        one(resume=True, progress=progress)
    assert before
    assert contents(tmp_path) == before
    assert timeless(make(into="")(resume=True)) == timeless(make()())
