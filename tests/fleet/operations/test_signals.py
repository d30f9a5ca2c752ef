"""What a node's process does when it is told something by a signal."""

import signal
import threading
from pathlib import Path

import pytest
from fleets import Fleet


def test_a_node_that_is_hung_up_on_goes_on(tmp_path: Path) -> None:
    with Fleet.of(tmp_path, "a") as fleet:
        fleet.start("a")
        process, log = fleet.members["a"].process, fleet.members["a"].log
        assert process is not None
        for times in (1, 2):
            process.send_signal(signal.SIGHUP)
            fleet.wait(lambda times=times: log.read_text("utf-8").count('"event": "SIGHUP"') == times)  # type: ignore[misc]
        fleet.trains("a")
        assert fleet.ask("a").weights == {"a": 1.0}


@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="needs /proc to see how far a process is")
def test_a_node_that_is_hung_up_on_while_it_starts_comes_up(tmp_path: Path) -> None:
    with Fleet.of(tmp_path, "a") as fleet:
        member, sent, over = fleet.members["a"], threading.Event(), threading.Event()

        def hang_up() -> None:
            """As soon as torch is being loaded, which takes longer than all else."""
            while not over.wait(0.005):
                if (process := member.process) is not None and "libtorch" in maps_of(process.pid):
                    process.send_signal(signal.SIGHUP)
                    sent.set()
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        try:
            fleet.start("a")
        finally:
            over.set()
        assert sent.is_set()
        assert fleet.ask("a").weights == {"a": 1.0}


def maps_of(pid: int) -> str:
    """The files that a process has loaded."""
    try:
        return Path(f"/proc/{pid}/maps").read_text("utf-8")
    except OSError:  # it has ended
        return ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_that_is_told_to_end_saves_and_ends(tmp_path: Path, number: signal.Signals) -> None:
    with Fleet.of(tmp_path, "a") as fleet:
        fleet.start("a")
        process = fleet.members["a"].process
        assert process is not None
        fleet.end("a", number)
        assert process.returncode == 0
        assert fleet.members["a"].state.is_file()
