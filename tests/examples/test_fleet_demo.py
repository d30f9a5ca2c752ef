"""The demonstration, with real processes: what it promises, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import gone, wait_until

from examples.fleet_demo import demo
from examples.fleet_demo.demo import PHASES, DemoResult, NodeResult, PhaseResult, run_demo
from examples.fleet_demo.nodes import LABELLED, MODELS, MOST, ONNX_FILE, SHARD, TEST, digits, make_nodes, rows
from examples.fleet_demo.show import closing, share
from lntrust.fleet.settings import load_node
from lntrust.learners.onnx import OnnxClassifier


def test_two_die_one_returns_and_all_questions_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ever, but without the time that people want for looking."""
    for name, seconds in {"_DOWN": 2.0, "_AFTER": 2.0, "_PAUSE": 0.05}.items():
        monkeypatch.setattr(demo, name, seconds)
    result = run_demo(tmp_path / "demo", 4)
    assert [each.phase for each in result.phases] == list(PHASES)
    assert result.errors == []
    for phase in result.phases:
        assert phase.questions >= 10
        assert phase.answered == phase.questions
        assert 0 < phase.p50 <= phase.p99 < 20  # else somebody was waited for without end
    back, gone_for_good = result.killed
    assert result.resumed_round >= result.saved_round > 15
    nodes = {each.name: each for each in result.nodes}
    assert nodes.pop(gone_for_good).deployed is None
    assert nodes[back].round == 55
    for each in nodes.values():
        assert each.deployed is not None
        assert each.deployed > 0.5
        assert each.bytes is not None
        assert min(each.bytes[way][kind] for way in ("in", "out") for kind in ("query", "reply")) > 0
    assert len(result.ids) == 5
    assert all(map(gone, result.ids))
    text = closing(result)
    assert "all were answered" in text
    assert f"{back} came back and went on from round {result.saved_round}" in text


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see a process's children")
@pytest.mark.parametrize(
    ("whom", "number", "code", "words"),
    [
        ("demo", signal.SIGINT, 130, "all processes of the demonstration have ended"),
        ("demo", signal.SIGTERM, 130, "all processes of the demonstration have ended"),
        ("child", signal.SIGKILL, 1, "ended by itself with code -9"),
    ],
)
def test_however_it_ends_no_process_is_left(
    tmp_path: Path, whom: str, number: signal.Signals, code: int, words: str
) -> None:
    arguments = ["fleet", "demo", "--nodes", "4", "--keep", str(tmp_path / "d")]
    with subprocess.Popen(
        [sys.executable, "-m", "lntrust.cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        # Whoever runs the tests in the background ignores Ctrl-C, and children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        try:
            children = _children(process, 4)
            os.kill(process.pid if whom == "demo" else children[0], number)
            printed, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    assert words in " ".join(printed.decode().split())
    assert process.returncode == code
    assert all(map(gone, children))


def _children(process: "subprocess.Popen[bytes]", count: int) -> list[int]:
    children: list[str] = []

    def have_come() -> bool:
        assert process.poll() is None
        children[:] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("utf-8").split()
        return len(children) >= count

    wait_until(have_come, 300, every=0.05)
    return list(map(int, children))


def test_a_folder_in_use_is_refused(lntrust: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    got = lntrust("fleet", "demo", "--keep", tmp_path)
    assert got.code == 2
    assert "is not empty" in got.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("count", [4, 8])
def test_folders_of_every_size(tmp_path: Path, count: int) -> None:
    made = make_nodes(tmp_path, count)
    settings = {each.name: load_node(each.folder) for each in made}
    for name, each in settings.items():
        assert 3 <= len(each.neighbours) <= 4
        assert all(name in [n.name for n in settings[other.name].neighbours] for other in each.neighbours)
    assert all(each.test_x.shape == (TEST, 8, 8) for each in made)
    assert {"mlp", "cnn2d", "forest", "onnx"} <= {each.model.kind for each in settings.values()}


def test_nobody_shares_a_row_and_the_onnx_file_knows_digits_that_it_has_not_seen() -> None:
    (parts, apart), (x, y) = rows(), digits()
    assert [len(each) for each in parts] == [LABELLED + SHARD + TEST] * MOST == [200] * len(MODELS)
    together = np.concatenate([*parts, apart])
    assert len(np.unique(together)) == len(together) == len(y)
    counts = np.stack([np.bincount(y[each], minlength=10) for each in parts])
    assert counts.max(1).min() > 1.5 * counts.mean()  # each has a class of which it has more than its share
    unseen = np.concatenate(parts)
    said = OnnxClassifier(str(ONNX_FILE), (8, 8), 10).predict_proba(x[unseen].reshape(-1, 64) / 16)
    assert np.mean(said.argmax(1) == y[unseen]) > 0.8


def _result(deployed: float, alone: float, answered: int, resumed: int) -> DemoResult:
    phases = [PhaseResult(name, 1000, answered, deployed, alone, 0.01, 0.02, 2.0) for name in PHASES]
    nodes = [NodeResult("a", "mlp", alone, deployed, 2, 0.5, 9, {}), NodeResult("b", "mlp")]
    return DemoResult(nodes, phases, ("a", "b"), 5, resumed, 12.0, [])


def test_the_closing_sentence_tells_what_the_numbers_say() -> None:
    good, bad = _result(0.9, 0.8, 1000, 5), _result(0.7, 0.8, 999, 0)
    for result, words in (
        (good, "all were answered"),
        (good, "right on 0.900 of their test inputs, by themselves on 0.800; 1 of 1 are better"),
        (good, "went on from round 5"),
        (bad, "only 2997 were answered"),
        (bad, "1 worse"),
        (bad, "did NOT go on"),
        (_result(0.8, 0.8, 1000, 5), "0 worse, 1 the same"),
    ):
        assert words in closing(result)
    phase = good.phases[0]
    for asked, answered, shown in ((1000, 1000, "100 %"), (100_000, 99_999, "99.9 %"), (1000, 500, "50.0 %")):
        assert share(replace(phase, questions=asked, answered=answered)) == shown
