"""`lntrust fleet certs`."""

from pathlib import Path
from typing import Any


def test_certs(lntrust: Any, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    empty = lntrust("fleet", "certs", folder)
    assert empty.code == 2, "to look for an authority founds none"
    assert "is no authority's folder; --node NAME=HOST founds one" in " ".join(empty.err.split())
    assert not folder.exists()
    got = lntrust(
        "fleet", "certs", folder, "--node", "a=192.0.2.1,a.example", "--node", "b=192.0.2.2", "--days", "5"
    )
    assert got.code == 0, got.err
    assert "renew it" in got.out
    assert sorted(path.name for path in (folder / "a").iterdir()) == ["ca.pem", "node.key", "node.pem"]
    got = lntrust("fleet", "certs", folder, "--renew", "all", "--remove", "b")
    assert got.code == 0, got.err
    assert "90 days left" in got.out
    assert "removed" in got.out
    assert not (folder / "b").exists()


def test_what_is_wrong_is_said(lntrust: Any, tmp_path: Path) -> None:
    certs = ("fleet", "certs", tmp_path / "fleet")
    assert lntrust(*certs, "--node", "z=192.0.2.9").code == 0
    wrong = {"--node=a": "NAME=HOST", "--node=a=x,,y": "NAME=HOST", "--renew=a": "has no certificate"}
    for option, words in wrong.items():
        got = lntrust(*certs, option)
        assert got.code == 2
        assert words in " ".join(got.err.split())
