"""Neither a node's working folder nor that of its settings is where its libraries are looked for."""

import sys
from collections.abc import Sequence
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


@pytest.mark.parametrize("program", [SAFE, LNTRUST], ids=["lntrust", "python -m"])
def test_no_library_is_taken_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Sequence[str]
) -> None:
    model = {"kind": "sklearn.linear_model:LogisticRegression"}  # named as a model of one's own would be
    with Fleet.of(tmp_path, "a", everybody={"model": model}) as fleet:
        here, marker = tmp_path / "here", tmp_path / "imported"
        here.mkdir()
        for folder in (here, fleet.members["a"].folder):
            for name in NAMES:
                (folder / f"{name}.py").write_text(PLANTED.format(marker=str(marker)), "utf-8")
        monkeypatch.chdir(here)
        fleet.start("a", program=program)
        answer = urllib3.request("GET", f"http://{fleet.members['a'].settings.http.listen}/metrics")
    assert not marker.exists(), f"{marker.read_text()} was imported"
    assert answer.status == 200
    assert b"lntrust_uptime_seconds" in answer.data


def test_a_model_of_ones_own_lies_beside_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the node is started, and whatever else it imports: nothing comes from where it is started."""
    text = "import own_parts\n\ndef make(shape, classes):\n    return own_parts.made()\n"
    parts = (
        "def made():\n"
        "    from sklearn.naive_bayes import GaussianNB\n\n"
        "    import own_later\n\n"  # found when it is called, too
        "    try:\n"
        f"        import {NOT_INSTALLED}\n"
        "    except ImportError:\n"
        "        pass\n"
        "    return GaussianNB()\n"
    )
    with Fleet.of(tmp_path, "a", everybody={"model": {"kind": "own_model:make"}}) as fleet:
        folder = fleet.members["a"].folder
        for name, content in (("own_model", text), ("own_parts", parts), ("own_later", "")):
            (folder / f"{name}.py").write_text(content, "utf-8")
        here, marker = tmp_path / "elsewhere", tmp_path / "imported"
        here.mkdir()
        for name in (*NAMES, NOT_INSTALLED):
            (here / f"{name}.py").write_text(PLANTED.format(marker=str(marker)), "utf-8")
        monkeypatch.chdir(here)
        fleet.start("a", program=SAFE)
        assert fleet.ask("a").weights == {"a": 1.0}
        assert not marker.exists(), f"{marker.read_text()} was imported"
