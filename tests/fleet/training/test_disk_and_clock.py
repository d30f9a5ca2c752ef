"""A disk that is full, and a clock that is wrong."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleets import Clients, Fleet, probed, without

from lntrust.fleet.training.state import read_state

FIND_FAKETIME = Path(__file__).parents[2] / "find_faketime.sh"
# libfaketime spoils time.sleep where the monotonic clock is the real one; other ways to wait are sound.
WAITS_OTHERWISE = (
    sys.executable,
    "-c",
    "import threading, time; time.sleep = threading.Event().wait; from lntrust.cli import main; main()",
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_stops_nothing(small_disk: Path, tmp_path: Path) -> None:
    """Saves fail and are counted, the last state stays, and when there is room again they go on."""
    own = {"a": {"life": {"state": str(small_disk / "state")}}}
    with Fleet.of(tmp_path / "fleet", "ab", own) as fleet:
        fleet.start("a", "b")
        fleet.until("a", probed("b"))
        fleet.until("a", lambda status: status["saved"]["round"] is not None)
        with (small_disk / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass
        with Clients(fleet, "a") as clients:
            status = fleet.until("a", lambda status: status["saved"]["failures"] >= 3)
            fleet.trains("a")
        assert set(clients.answers[-1].weights) == {"a", "b"}
        assert "state not saved" in fleet.members["a"].log.read_text("utf-8")
        saved = read_state(small_disk / "state", "a")
        assert saved is not None
        assert saved.node.done == status["saved"]["round"] < status["round"]
        assert {file.name for file in (small_disk / "state").iterdir()} == {"node.safetensors"}
        failures = fleet.status("a")["saved"]["failures"]

        (small_disk / "filler").unlink()
        status = fleet.until("a", lambda now: now["saved"]["round"] > status["round"])
        assert status["saved"]["failures"] >= failures
        fleet.kill("a")
        assert read_state(small_disk / "state", "a") is not None


@pytest.fixture(scope="module")
def two_years_ahead() -> dict[str, str]:
    """What has to stand in a program's environment so that its clock is wrong, but no timeout."""
    found = subprocess.run([str(FIND_FAKETIME)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(found.stderr.strip().splitlines()[-1])
    faketime = found.stdout.strip().splitlines()[-1]
    # The program `faketime` would stay between us and the node, and live on when that is killed.
    show = [faketime, "-f", "+0", sys.executable, "-c", "import os; print(os.environ['LD_PRELOAD'])"]
    library = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
    return {"LD_PRELOAD": library, "FAKETIME": "+2y", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def test_a_node_whose_clock_is_years_ahead_stands_alone(
    two_years_ahead: dict[str, str], tmp_path: Path
) -> None:
    """By its clock every certificate has run out. It answers by itself; others go on without it."""
    with Fleet.of(tmp_path, "abc") as fleet:
        fleet.start("a", "b")
        fleet.start("c", program=WAITS_OTHERWISE, environment=two_years_ahead)
        fleet.until("c", lambda status: status["phase"] == "stage 2")
        fleet.until("a", probed("b"))
        fleet.trains("c")
        assert fleet.ask("c").weights == {"c": 1.0}
        assert set(fleet.ask("a").weights) == {"a", "b"}
        status = fleet.until("c", without("a", "b"))
        assert status["certificate"]["seconds_left"] < -86400 * 365
        assert not any(each["present"] for each in status["neighbours"].values())
        assert not fleet.status("a")["neighbours"]["c"]["present"]

        checked = subprocess.run(
            [*WAITS_OTHERWISE, "node", "check", str(fleet.members["c"].folder), "--wait", "1"],
            capture_output=True, text=True, timeout=60, env={**os.environ, **two_years_ahead},
        )  # fmt: skip
        assert checked.returncode == 1, checked.stdout + checked.stderr
        assert "has run out on" in " ".join(checked.stdout.split())

        fleet.kill("c")  # and its clock is set right
        fleet.start("c")
        fleet.until("c", probed("a", "b"))
        fleet.until("a", probed("c"))
