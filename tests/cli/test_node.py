"""`lntrust node`, as a new user meets it: from an empty folder to answers of nodes that know each other."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import all_probed, wait_until
from typer.testing import CliRunner

from examples.fleet_demo.supervisor import LOG, Fleet, free_ports
from lntrust.cli import app
from lntrust.fleet.settings import NodeSettings, fields_of


def typed(*arguments: object) -> str:
    """A command that must do; what it printed."""
    got = CliRunner().invoke(app, [str(each) for each in arguments])
    assert got.exit_code == 0, got.output
    return got.output


@dataclass
class Made:
    """Two nodes, as `fleet certs` and `node init` made them; b wants a token of its clients."""

    a: Path
    b: Path
    checked: str  # what `node check` said before they ran
    fleet: Fleet


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    root = tmp_path_factory.mktemp("first")
    typed("fleet", "certs", root / "keys", "--node", "a=127.0.0.1", "--node", "b=127.0.0.1")
    doors = free_ports(4)
    folders = {}
    for number, (name, other) in enumerate((("a", "b"), ("b", "a"))):
        folders[name] = root / name
        said = typed(
            "node", "init", folders[name], "--certificates", root / "keys" / name,
            "--neighbour", f"{other}=127.0.0.1:{doors[1 - number]}", "--listen", f"127.0.0.1:{doors[number]}",
            "--http", f"127.0.0.1:{doors[2 + number]}", "--example", number,
        )  # fmt: skip
        assert f"next: lntrust node check {folders[name]}" in said
    (folders["b"] / "token.txt").write_text("s3cret\n", "utf-8")
    path = folders["b"] / "NODE.toml"
    path.write_text(path.read_text("utf-8").replace("# token =", "token ="), "utf-8")
    checked = typed("node", "check", folders["a"], "--wait", 0.2)
    with Fleet(folders) as fleet:
        for name in folders:
            fleet.start(name)

        def are_ready() -> bool:
            fleet.check()
            return all(status is not None and all_probed(status) for status in fleet.statuses().values())

        wait_until(are_ready, 240, lambda: str(fleet.statuses()), every=0.1)
        yield Made(folders["a"], folders["b"], checked, fleet)


# -- what runs ------------------------------------------------------------------------------------


def test_check_says_what_will_be(made: Made) -> None:
    assert made.checked.count("✓") == 6  # the sixth: in which form nodes are asked to answer
    assert "no answer within 0.2 s" in " ".join(re.sub("[│┃]", " ", made.checked).split())


def test_check_asks_a_node_that_runs(made: Made, lntrust: Any) -> None:
    got = lntrust("node", "check", made.a)
    assert got.code == 0
    assert "runs already" in got.out
    assert "there, round trip" in got.out


@pytest.mark.parametrize("name", ["a", "b"])
def test_status(made: Made, lntrust: Any, name: str) -> None:
    folder = made.fleet.folders[name]
    got = lntrust("node", "status", folder)
    assert got.code == 0
    assert f"{name}: deployed, round 80 of 80" in got.out
    told = json.loads(lntrust("node", "status", folder, "--json").out)
    assert (told["name"], told["error"], told["phase"]) == (name, None, "deployed")
    assert sum(told["trust"].values()) == pytest.approx(1, abs=1e-4)
    assert told["bytes"]["in"]["reply"] > 0


@pytest.mark.parametrize("name", ["a", "b"])
def test_predict(made: Made, lntrust: Any, name: str) -> None:
    folder = made.fleet.folders[name]
    x, y = (np.load(folder / "test.npz")[key] for key in ("x", "y"))
    told = json.loads(lntrust("node", "predict", folder, folder / "test.npz", "--json").out)
    assert len(told["label"]) == len(y)
    assert (np.array(told["label"]).astype(int) == y).mean() > 0.6
    np.testing.assert_allclose(np.sum(told["probabilities"], 1), 1, atol=1e-4)
    assert set(told["weights"]) <= {"a", "b"}
    np.save(folder / "few.npy", x[:3])
    got = lntrust("node", "predict", folder, folder / "few.npy", "--model", "self")
    assert got.code == 0
    rows = [line.split("│") for line in got.out.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == ["0", "1", "2"]
    assert got.err == f"answered by: {name} 1.00\n"


def test_who_has_not_the_token_is_told(made: Made, lntrust: Any, tmp_path: Path) -> None:
    text = (made.b / "NODE.toml").read_text("utf-8").replace("\ntoken =", "\n# token =")
    (tmp_path / "NODE.toml").write_text(text, "utf-8")
    for command, *inputs in (("status",), ("predict", made.b / "test.npz")):
        got = lntrust("node", command, tmp_path, *inputs)
        assert got.code == 2
        assert "node b: 401" in got.err
        assert got.out == ""


def test_watching_ends_when_it_is_interrupted(made: Made) -> None:
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "lntrust.cli", "node", "status", str(made.a), "--watch"]
    try:
        with subprocess.Popen(
            command, stdout=terminal, stderr=terminal, stdin=terminal,
            # Whoever runs the tests in the background ignores Ctrl-C, and children would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:  # fmt: skip
            os.close(terminal)
            try:
                seen = read_until(screen, b"clients:")
                process.send_signal(signal.SIGINT)
                seen += read_until(screen, None)
                assert process.wait(30) == 0
            finally:
                process.kill()
    finally:
        os.close(screen)
    assert b"a: deployed" in seen
    assert b"Traceback" not in seen


def read_until(screen: int, words: bytes | None, seconds: float = 60) -> bytes:
    """What is written until these words; none: until whoever writes has gone."""
    seen, deadline = b"", time.monotonic() + seconds
    while words is None or words not in seen:
        there, _, _ = select.select([screen], [], [], max(0.0, deadline - time.monotonic()))
        assert there, f"after {seconds:g} s: {seen!r}"
        try:
            more = os.read(screen, 10_000)
        except OSError:  # as Linux says that nobody is there any more
            more = b""
        if not more:
            assert words is None, seen
            return seen
        seen += more
    return seen


def test_the_log_is_json_and_the_end_is_clean(made: Made, lntrust: Any) -> None:
    """The last of those that need running nodes: it ends one."""
    assert made.fleet.stop("b") == 0
    lines = [json.loads(line) for line in (made.b / LOG).read_text("utf-8").splitlines()]
    events = [line["event"] for line in lines]
    assert {"node started", "clients can come", "trust refreshed", "training is over"} <= set(events)
    assert events[-1] == "node stopped"
    assert (made.b / "state" / "node.safetensors").is_file()
    for command, *inputs in (("status",), ("predict", made.b / "test.npz")):
        got = lntrust("node", command, made.b, *inputs)
        assert got.code == 2
        assert "error: node b: no answer at 127.0.0.1" in got.err
        assert "start it with `lntrust node run`" in got.err


# -- what does not run ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "check", "run", "predict"])
def test_a_folder_that_holds_no_node(lntrust: Any, tmp_path: Path, command: str) -> None:
    got = lntrust("node", command, tmp_path, *(["x.npy"] if command == "predict" else []))
    assert got.code == (1 if command == "check" else 2)
    text = re.sub(r"[│┃\s]", "", got.out + got.err)  # a table breaks long paths anywhere
    assert f"{tmp_path}/NODE.toml:notareadableTOMLfile" in text


def test_check_ends_with_1_if_something_is_wrong(lntrust: Any, tmp_path: Path) -> None:
    typed("node", "init", tmp_path / "n")  # without data
    got = lntrust("node", "check", tmp_path / "n", "--wait", "0.1")
    assert got.code == 1
    assert "✗" in got.out
    finding = "".join(line.split("│")[3].strip() for line in got.out.splitlines() if line.startswith("│"))
    assert str(tmp_path / "n" / "data.npz") in finding, "a path is not cut off, however long"


def test_settings_lists_every_field(lntrust: Any) -> None:
    got = lntrust("node", "settings")
    assert got.code == 0
    first = [line.split("│")[1].strip() for line in got.out.splitlines() if line.startswith("│")]
    assert [name for name in first if name] == [path for path, _, _ in fields_of(NodeSettings)]
    assert "…" not in got.out.replace("[m, …]", ""), "nothing is cut off"
    meanings = " ".join(line.split("│")[3].strip() for line in got.out.splitlines() if line.startswith("│"))
    assert meanings.count("; a live node refuses it, leave it out") == 3, "two, and split_validation"
