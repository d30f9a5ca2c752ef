"""`lntrust node check`: what is in a node's way is named before it runs."""

import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

import pytest
from fleets import Fleet

from lntrust.fleet.http.app import HttpDoor
from lntrust.fleet.node import Node
from lntrust.fleet.operations.certificates import NODE_FILES, Authority, NodeCertificate
from lntrust.fleet.operations.check import Finding, check_node

WAIT = 0.3  # seconds for neighbours that are not there
LONG = 60.0  # for those that are


def findings(folder: Path, wait: float = WAIT) -> dict[str, Finding]:
    return {each.what: each for each in check_node(folder, wait)}


def own(folder: Path) -> dict[str, Finding]:
    """What is found before any neighbour is asked."""
    return {each.what: each for each in takewhile(lambda each: each.what != "b", check_node(folder, 0.1))}


def certified_as(folder: Path, other: Path) -> None:
    """Put the certificate of another folder there."""
    for name in NODE_FILES:
        shutil.copy(other / name, folder / name)


def changed(folder: Path, old: str, new: str) -> Path:
    path = folder / "NODE.toml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    return folder


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet.of(tmp_path, ["a", "b"])


@pytest.fixture
def folder(fleet: Fleet) -> Path:
    return fleet.members["a"].folder


def test_all_is_well_and_nobody_is_there(folder: Path) -> None:
    (folder / "node.key").chmod(0o640)
    changed(folder, "[trust]", '[trust]\nreply = "top3"')
    got = findings(folder)
    assert {name: each.grade for name, each in got.items()} == {
        "settings": "good", "certificate": "good", "data": "good", "model": "good", "key": "bad",
        "shown to neighbours": "good", "replies": "good", "b": "warning",
    }  # fmt: skip
    assert got["settings"].text == "node a, 1 neighbours"
    assert "90 days" in got["certificate"].text
    assert "36 to train, 24 to validate, 100 unlabelled" in got["data"].text
    assert "linear answers in" in got["model"].text
    assert got["key"].text == f"{folder / 'node.key'} can be read by others: chmod 600"
    assert got["replies"].text == "top3: 6 bytes for what a node says about an input, instead of 40"
    shown = "to probe: labelled inputs (validation); to learn: shard.npz; deployed: what clients ask about"
    assert got["shown to neighbours"].text == shown
    assert got["b"].text.startswith("no answer within 0.3 s: off, elsewhere, or we are not on its list")
    assert not (folder / "state").exists(), "looking changes nothing"


def test_without_peers_no_certificate_is_needed(tmp_path: Path) -> None:
    folder = Fleet.of(tmp_path, ["a"]).members["a"].folder
    for name in NODE_FILES:
        (folder / name).unlink()
    changed(folder, 'probe_with = "validation"', 'probe_with = "none"\ndeployed = false')
    got = findings(changed(folder, 'shard = "shard.npz"', 'shard = "none"'))
    assert got["certificate"].text == "none needed: no neighbour is a node"
    assert got["shown to neighbours"].text == "nothing: without probes it learns and answers alone"
    assert {each.grade for each in got.values()} == {"good"}


def test_settings_that_cannot_be_read_end_it(folder: Path) -> None:
    (only,) = check_node(changed(folder, "[model]", "[modl]"), WAIT)
    assert (only.grade, only.what) == ("bad", "settings")
    assert "unknown field modl; did you mean model?" in only.text


# -- certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "names", "words"),
    [
        ("b", NODE_FILES, "is b's, and not a's"),
        ("other/a", ("ca.pem",), "is not of the authority"),
        ("other/a", ("node.key",), "is not the key of node.pem"),
    ],
)
def test_certificates_that_do_not_fit(folder: Path, of: str, names: tuple[str, ...], words: str) -> None:
    Authority.open(folder.parent / "other").issue("a", ["127.0.0.2"])
    for name in names:
        shutil.copy(folder.parent / of / name, folder / name)
    found = list(check_node(folder, WAIT))
    assert [words in each.text for each in found if each.grade == "bad"] == [True]
    assert "b" not in {each.what for each in found}, "then nobody is asked"


def test_certificates_that_are_none(folder: Path) -> None:
    (folder / "node.pem").write_text("x", "utf-8")
    assert "not a readable certificate" in own(folder)["certificate"].text
    (folder / "node.key").unlink()
    got = own(folder)["certificate"]
    assert (got.grade, "node.key: cannot be read: No such file" in got.text) == ("bad", True)


@pytest.mark.parametrize(
    ("begins", "ends", "grade", "words"),
    [
        (-20, -1, "bad", "has run out on"),
        (1, 20, "bad", "this clock says"),
        (-20, 2, "warning", "2 days"),
        (-20, 20, "good", "20 days"),
    ],
)
def test_a_certificate_has_its_time(fleet: Fleet, begins: int, ends: int, grade: str, words: str) -> None:
    now = datetime.now(UTC)
    fleet.recertify("a", now + timedelta(days=begins), now + timedelta(days=ends))
    got = own(fleet.members["a"].folder)["certificate"]
    assert (got.grade, words in got.text) == (grade, True)


# -- settings, data and model ---------------------------------------------------------------------


def http(listen: str, **more: str) -> dict[str, dict[str, str]]:
    return {"http": {"listen": f"{listen}:8080", **more}}


NO_TOKEN = "without a token: set http.token, or listen on 127.0.0.1"


@pytest.mark.parametrize(
    ("changes", "what", "words"),
    [
        ({"model": {"kind": "lineal"}}, "model", "must be one of linear"),
        ({"model": {"kind": "cnn2d"}}, "model", "model.kind = 'cnn2d' fails on inputs of shape"),
        ({"model": {"kind": "small_nodes:raising"}}, "model", "no such device"),
        ({"model": {"kind": "sklearn.svm:SVC"}}, "model", "predict_proba"),
        ({"data": {"labelled": "absent.npz"}}, "data", "absent.npz"),
        ({"data": {"labelled": "small_nodes:broken"}}, "data", "the camera is off"),
        ({"input": {"shape": [64]}}, "data", "must be [m, 64]"),
        (http("0.0.0.0"), "clients", f"http.listen = 0.0.0.0:8080: whoever reaches it can ask, {NO_TOKEN}"),
        (http("camera-1.lan"), "clients", NO_TOKEN),
        (http("192.0.2.7", token="t"), "clients", "put a proxy with TLS before it"),
        (http("127.0.0.7"), "clients", ""),
        (http("[::1]"), "clients", ""),
        (http("localhost"), "clients", ""),
    ],
)
def test_what_is_wrong(tmp_path: Path, changes: dict[str, dict[str, str]], what: str, words: str) -> None:
    got = findings(Fleet.of(tmp_path, ["a", "b"], {"a": changes}).members["a"].folder)
    if not words:
        assert what not in got, "on loopback it needs no token"
        return
    assert (got[what].grade, words in got[what].text) == ("warning" if "TLS" in words else "bad", True)
    assert ("b" in got) == (what == "clients"), "whose own things are broken asks nobody"


# -- neighbours -----------------------------------------------------------------------------------


def test_neighbours_that_are_there(tmp_path: Path) -> None:
    """c has the classes in another order. Then a runs, too, and is asked itself."""
    swapped = ["1", "0", *map(str, range(2, 10))]
    fleet = Fleet.of(tmp_path, ["a", "b", "c"], {"c": {"input": {"classes": swapped}}})
    a, b, c = (member.folder for member in fleet.members.values())
    with Node.from_file(b, train=False):
        with Node.from_file(c, train=False):
            got = findings(a, LONG)
        assert (got["b"].grade, got["b"].text.startswith("there, round trip")) == ("good", True)
        assert (got["c"].grade, "class 0 is " in got["c"].text) == ("bad", True)
        with Node.from_file(a, train=False) as node, closing(HttpDoor(node)):
            got = findings(a)
        assert got["node"].text == "runs already; what follows is what it says"
        assert (got["c"].grade, got["c"].text) == ("warning", "not there")
        Authority.open(tmp_path / "other").issue("a", ["127.0.0.1"])
        certified_as(a, tmp_path / "other" / "a")
        got = findings(a)
        assert got["certificate"].grade == "good"
        assert got["b"].text.startswith("no answer"), "nobody here believes another fleet's authority"


# -- what a certificate is for --------------------------------------------------------------------


def test_a_node_that_is_not_where_its_certificate_says_is_not_believed(fleet: Fleet, folder: Path) -> None:
    b, authority = fleet.members["b"].folder, Authority.open(fleet.root / "certificates")
    authority.remove("b")
    authority.issue("b", ["192.0.2.7"])
    certified_as(b, authority.folder / "b")
    changed(b, f'address = "{fleet.members["a"].settings.network.listen}"', "")  # it dials nobody
    with Node.from_file(b, train=False):
        assert findings(folder, 2.0)["b"].text.startswith("no answer")


@pytest.mark.parametrize(
    ("hosts", "listen", "fits"),
    [
        (["camera-1.lan"], "192.0.2.7", True),  # whoever dials the name
        (["camera-1.lan"], "camera-1.lan", True),
        (["camera-1.lan"], "CAMERA-1.lan.", True),
        (["camera-1.lan"], "camera-2.lan", False),
        (["camera-1.lan"], "0.0.0.0", True),
        (["127.0.0.1"], "localhost", True),  # whoever dials the address
        (["192.0.2.7"], "localhost", False),
        (["192.0.2.7"], "192.0.2.8", False),
        (["::1"], "0:0::1", True),
        (["::1"], "::2", False),
    ],
)
def test_who_can_connect(tmp_path: Path, hosts: list[str], listen: str, fits: bool) -> None:
    Authority.open(tmp_path / "keys").issue("a", hosts)
    got = NodeCertificate(tmp_path / "keys" / "a").out_of_reach(listen)
    assert (got is None) == fits, got
    words = f"is for {', '.join(hosts)}, and the node listens on {listen}: neighbours that dial {listen} will"
    assert got is None or words in got


def test_addresses_and_names_that_are_dialled(fleet: Fleet, folder: Path, tmp_path: Path) -> None:
    """One that only dials may be certified for any address: it is warned, and meets its neighbours all the
    same. So do nodes that listen on an address, and are certified and dialled by a name."""
    b = fleet.members["b"].folder
    changed(folder, 'listen = "127.0.0.1', 'listen = "127.0.0.2')
    with Node.from_file(b, train=False):
        found = list(check_node(folder, LONG))
    grades = {(each.what, each.grade) for each in found}
    assert {("certificate", "warning"), ("b", "good")} <= grades, found
    assert "bad" not in {each.grade for each in found}
    for name, place in (("a", folder), ("b", b)):
        Authority.open(tmp_path / "names").issue(name, ["localhost"])
        certified_as(place, tmp_path / "names" / name)
        changed(place, 'address = "127.0.0.1', 'address = "localhost')
    with Node.from_file(b, train=False):
        got = findings(folder, LONG)
    assert (got["certificate"].grade, got["b"].grade) == ("good", "good"), got
