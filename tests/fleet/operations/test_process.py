"""A node as a process of its own: which code it imports, and what it does when a signal comes."""

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from fleets import LNTRUST, Fleet

PLANTED = """
from pathlib import Path
Path({marker!r}).write_text(__name__)
raise ImportError("planted")
"""
# prometheus_client is imported when /metrics is asked for, the others are tried by libraries of a node.
NAMES = ("prometheus_client", "brotli", "zstandard", "uvloop", "sklearn", "torch", "zenoh")
NOT_INSTALLED = "lntrust_test_optional"  # as psutil may be, for a library that tries it
SAFE = (sys.executable, "-P", "-m", "lntrust.cli")  # with the search path that the command `lntrust` has
OWN = {
    "own_model": "import own_parts\n\ndef make(shape, classes):\n    return own_parts.made()\n",
    "own_parts": "def made():\n"
    "    from sklearn.naive_bayes import GaussianNB\n\n"
    "    import own_later\n\n"  # found when it is called, too
    "    try:\n"
    f"        import {NOT_INSTALLED}\n"
    "    except ImportError:\n"
    "        pass\n"
    "    return GaussianNB()\n",
    "own_later": "",
}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A library that writes a file, if it is imported. It lies in the working folder, under many names."""
    here, marker = tmp_path / "here", tmp_path / "imported"
    here.mkdir()
    text = PLANTED.format(marker=str(marker))
    for name in (*NAMES, NOT_INSTALLED):
        (here / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.chdir(here)
    yield text
    assert not marker.exists(), f"{marker.read_text()} was imported"


def test_no_library_is_taken_from_the_working_folder(tmp_path: Path, planted: str) -> None:
    """Nor from that of the settings."""
    model = {"kind": "sklearn.linear_model:LogisticRegression"}  # named as a model of one's own would be
    with Fleet.of(tmp_path, "a", everybody={"model": model}) as fleet:
        for name in NAMES:
            (fleet.members["a"].folder / f"{name}.py").write_text(planted, "utf-8")
        fleet.start("a", program=LNTRUST)
        answer = urllib3.request("GET", f"http://{fleet.members['a'].settings.http.listen}/metrics")
    assert answer.status == 200
    assert b"lntrust_uptime_seconds" in answer.data


@pytest.mark.usefixtures("planted")
def test_a_model_of_ones_own_lies_beside_its_settings(tmp_path: Path) -> None:
    """Wherever the node is started, and whatever else it imports: nothing comes from where it is started."""
    with Fleet.of(tmp_path, "a", everybody={"model": {"kind": "own_model:make"}}) as fleet:
        for name, content in OWN.items():
            (fleet.members["a"].folder / f"{name}.py").write_text(content, "utf-8")
        fleet.start("a", program=SAFE)
        assert fleet.ask("a").weights == {"a": 1.0}


# -- signals --------------------------------------------------------------------------------------


def ends_well(fleet: Fleet, number: signal.Signals) -> None:
    """Told to end, it saves, and ends."""
    assert fleet.end("a", number) == 0
    assert fleet.members["a"].state.is_file()


def test_a_node_that_is_hung_up_on_goes_on_and_ends_when_told_to(tmp_path: Path) -> None:
    with Fleet.of(tmp_path, "a") as fleet:
        fleet.start("a")
        process, log = fleet.members["a"].process, fleet.members["a"].log
        assert process is not None
        for times in (1, 2):
            process.send_signal(signal.SIGHUP)
            fleet.wait(lambda times=times: log.read_text("utf-8").count('"event": "SIGHUP"') == times)  # type: ignore[misc]
        fleet.trains("a", rounds=1)
        ends_well(fleet, signal.SIGTERM)


@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="needs /proc to see how far a process is")
def test_a_node_that_is_hung_up_on_while_it_starts_comes_up(tmp_path: Path) -> None:
    with Fleet.of(tmp_path, "a") as fleet:
        member, sent, over = fleet.members["a"], threading.Event(), threading.Event()

        def hang_up() -> None:
            """As soon as torch is being loaded, which takes longer than all else."""
            while not over.wait(0.005) and not sent.is_set():
                process = member.process
                if process is not None and "libtorch" in Path(f"/proc/{process.pid}/maps").read_text("utf-8"):
                    process.send_signal(signal.SIGHUP)
                    sent.set()

        threading.Thread(target=hang_up, daemon=True).start()
        try:
            fleet.start("a", program=LNTRUST)
        finally:
            over.set()
        assert sent.is_set()
        assert fleet.ask("a").weights == {"a": 1.0}
        ends_well(fleet, signal.SIGINT)
