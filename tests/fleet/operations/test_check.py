"""`lntrust node check`: what is in a node's way is named before it runs."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fleets import Fleet

from lntrust.fleet.http.app import HttpDoor
from lntrust.fleet.node import Node
from lntrust.fleet.operations.certificates import NODE_FILES, Authority, out_of_reach
from lntrust.fleet.operations.check import Finding, check_node

WAIT = 0.3  # seconds for neighbours that are not there


def findings(folder: Path, wait: float = WAIT) -> dict[str, Finding]:
    return {each.what: each for each in check_node(folder, wait)}


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
    got = findings(folder)
    assert list(got) == ["settings", "certificate", "data", "model", "shown to neighbours", "b"]
    assert [each.grade for each in got.values()] == ["good"] * 5 + ["warning"]
    assert got["settings"].text == "node a, 1 neighbours"
    assert "90 days" in got["certificate"].text
    assert "36 to train, 24 to validate, 100 unlabelled" in got["data"].text
    assert "linear answers in" in got["model"].text
    assert got["b"].text.startswith("no answer within 0.3 s: off, elsewhere, or we are not on its list")
    assert not (folder / "state").exists(), "looking changes nothing"


def test_what_replies_take_is_said(folder: Path) -> None:
    changed(folder, "[trust]", '[trust]\nreply = "top3"')
    assert findings(folder)["replies"].text == (
        "top3: 6 bytes for what a node says about an input, instead of 40"
    )


def test_what_leaves_the_device_is_said(folder: Path) -> None:
    got = findings(folder)["shown to neighbours"].text
    assert (
        got == "to probe: labelled inputs (validation); to learn: shard.npz; deployed: what clients ask about"
    )
    changed(folder, 'probe_with = "validation"', 'probe_with = "none"\ndeployed = false')
    changed(folder, 'shard = "shard.npz"', 'shard = "none"')
    got = findings(folder)["shown to neighbours"].text
    assert got == "nothing: without probes it learns and answers alone"


def test_settings_that_cannot_be_read_end_it(folder: Path) -> None:
    (only,) = check_node(changed(folder, "[model]", "[modl]"), WAIT)
    assert (only.grade, only.what) == ("bad", "settings")
    assert "unknown field modl; did you mean model?" in only.text


# -- certificates ---------------------------------------------------------------------------------


def test_a_certificate_of_another_name(fleet: Fleet, folder: Path) -> None:
    certified_as(folder, fleet.members["b"].folder)
    found = list(check_node(folder, WAIT))
    wrong = [each for each in found if each.grade == "bad"]
    assert [each.text for each in wrong] == ["is b's; this node is named a"]
    assert "b" not in {each.what for each in found}, "nobody is asked with another's certificate"


def test_certificates_that_are_not_there(folder: Path) -> None:
    (folder / "node.key").unlink()
    got = findings(folder)["certificate"]
    assert got.grade == "bad"
    assert "node.key: is not there; `lntrust fleet certs` makes" in got.text
    (folder / "node.key").write_text("x", "utf-8")
    (folder / "node.pem").write_text("x", "utf-8")
    assert "not a readable certificate" in findings(folder)["certificate"].text


@pytest.mark.parametrize(
    ("begins", "ends", "grade", "words"),
    [
        (-20, -1, "bad", "has run out on"),
        (1, 20, "bad", "this clock says"),
        (-20, 2, "warning", "2 days"),
        (-20, 20, "good", "20 days"),
    ],
)
def test_a_certificate_has_its_time(
    fleet: Fleet, recertify: Callable[..., None], begins: int, ends: int, grade: str, words: str
) -> None:
    now = datetime.now(UTC)
    recertify(fleet, "a", now + timedelta(days=begins), now + timedelta(days=ends))
    got = findings(fleet.members["a"].folder)
    assert got["certificate"].grade == grade
    assert words in got["certificate"].text
    assert ("b" in got) == (grade != "bad")


def test_a_key_that_others_can_read(folder: Path) -> None:
    (folder / "node.key").chmod(0o640)
    got = findings(folder)
    assert got["key"] == Finding("bad", "key", f"{folder / 'node.key'} can be read by others: chmod 600")
    assert got["certificate"].grade == "good"
    assert "b" in got, "neighbours are asked all the same"


def opened(folder: Path, host: str) -> Path:
    """With its door for clients on this host."""
    path = folder / "NODE.toml"
    head, title, rest = path.read_text("utf-8").partition("[http]")
    path.write_text(head + title + rest.replace('"127.0.0.1:', f'"{host}:', 1), "utf-8")
    return folder


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "camera-1.lan"])
def test_a_door_that_is_open_to_others(folder: Path, host: str) -> None:
    got = findings(opened(folder, host))["clients"]
    assert got.grade == "bad"
    assert f"http.listen = {host}:" in got.text
    assert "without a token: set http.token, or listen on 127.0.0.1" in got.text
    (folder / "token.txt").write_text("s3cret", "utf-8")
    got = findings(changed(folder, "[http]", '[http]\ntoken = "token.txt"'))["clients"]
    assert got.grade == "warning"
    assert "put a proxy with TLS before it" in got.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "[::1]", "localhost"])
def test_a_door_on_loopback_needs_no_token(folder: Path, host: str) -> None:
    assert "clients" not in findings(opened(folder, host))


def test_without_peers_no_certificate_is_needed(tmp_path: Path) -> None:
    folder = Fleet.of(tmp_path, ["a"]).members["a"].folder
    for name in NODE_FILES:
        (folder / name).unlink()
    got = findings(folder)
    assert got["certificate"].text == "none needed: no neighbour is a node"
    assert {each.grade for each in got.values()} == {"good"}


# -- data and model -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "what", "words"),
    [
        ('kind = "linear"', 'kind = "lineal"', "model", "must be one of linear"),
        ('kind = "linear"', 'kind = "cnn2d"', "model", "model.kind = 'cnn2d' fails on inputs of shape"),
        ('kind = "linear"', 'kind = "small_nodes:text"', "model", "made a str"),
        ('kind = "linear"', 'kind = "small_nodes:raising"', "model", "no such device"),
        ('kind = "linear"', 'kind = "sklearn.svm:SVC"', "model", "predict_proba"),
        ('labelled = "data.npz"', 'labelled = "absent.npz"', "data", "absent.npz"),
        ('labelled = "data.npz"', 'labelled = "small_nodes:broken"', "data", "the camera is off"),
        ("shape = [8, 8]", "shape = [64]", "data", "must be [m, 64]"),
    ],
)
def test_what_is_wrong_with_data_and_model(folder: Path, old: str, new: str, what: str, words: str) -> None:
    got = findings(changed(folder, old, new))
    assert got[what].grade == "bad"
    assert words in got[what].text
    assert "b" not in got, "then nobody is asked"


# -- neighbours -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """b runs; a and c do not. c has the classes in another order."""
    swapped = ["1", "0", *map(str, range(2, 10))]
    fleet = Fleet.of(
        tmp_path_factory.mktemp("check"), ["a", "b", "c"], {"c": {"input": {"classes": swapped}}}
    )
    with Node.from_file(fleet.members["b"].folder, train=False):
        yield fleet


def test_a_neighbour_that_is_there(running: Fleet) -> None:
    got = findings(running.members["a"].folder, 3)
    assert got["b"].grade == "good"
    assert got["b"].text.startswith("there, round trip")
    assert got["c"].grade == "warning"


def test_a_neighbour_with_permuted_classes_is_named(running: Fleet) -> None:
    got = findings(running.members["c"].folder, 3)
    assert got["b"].grade == "bad"
    assert "class 0 is '0' here and '1' there" in got["b"].text or "class 0 is '1' here" in got["b"].text


def test_a_node_that_runs_already_is_asked_itself(running: Fleet) -> None:
    member = running.members["a"]
    with Node.from_file(member.folder, train=False) as node, closing(HttpDoor(node)):
        got = findings(member.folder)
    assert got["node"].text == "runs already; what follows is what it says"
    assert {"b", "c"} <= set(got)
    assert got["c"].text == "not there"


def test_an_authority_of_another_fleet(running: Fleet, tmp_path: Path) -> None:
    """Its certificate is good, but nobody here believes it."""
    folder = tmp_path / "a"
    shutil.copytree(running.members["a"].folder, folder)
    Authority.open(tmp_path / "other").issue("a", ["127.0.0.1"])
    certified_as(folder, tmp_path / "other" / "a")
    got = findings(folder)
    assert got["certificate"].grade == "good"
    assert got["b"].grade == "warning"
    assert "no answer" in got["b"].text


def test_certificates_that_do_not_fit_together(fleet: Fleet, folder: Path, tmp_path: Path) -> None:
    other = Authority.open(tmp_path / "other")
    other.issue("a", ["127.0.0.2"])
    for name, words in (("ca.pem", "is not of the authority"), ("node.key", "is not the key of node.pem")):
        own = (folder / name).read_bytes()
        (folder / name).write_bytes((tmp_path / "other" / "a" / name).read_bytes())
        texts = [each.text for each in check_node(folder, WAIT) if each.what == "certificate"]
        assert any(words in text for text in texts), texts
        (folder / name).write_bytes(own)


# -- what a certificate is for --------------------------------------------------------------------


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
        (["192.0.2.7"], "0.0.0.0", True),
        (["::1"], "0:0::1", True),
        (["::1"], "::2", False),
        (["192.0.2.7", "camera-1.lan"], "192.0.2.8", True),
    ],
)
def test_who_can_connect(tmp_path: Path, hosts: list[str], listen: str, fits: bool) -> None:
    Authority.open(tmp_path / "keys").issue("a", hosts)
    got = out_of_reach(tmp_path / "keys" / "a", listen)
    assert (got is None) == fits, got
    words = f"is for {', '.join(hosts)}, and the node listens on {listen}: neighbours that dial {listen} will"
    assert got is None or words in got


def test_one_that_only_dials_may_be_certified_for_any_address(fleet: Fleet, folder: Path) -> None:
    """It is warned, and meets its neighbours all the same."""
    changed(folder, 'listen = "127.0.0.1', 'listen = "127.0.0.2')
    with Node.from_file(fleet.members["b"].folder, train=False):
        got = list(check_node(folder, 10))
    grades = {(each.what, each.grade) for each in got}
    assert ("certificate", "warning") in grades
    assert ("b", "good") in grades, got
    assert "bad" not in {each.grade for each in got}


def test_names_in_the_place_of_addresses(tmp_path: Path) -> None:
    """Nodes that listen on an address, and are certified and dialled by a name: they meet."""
    fleet = Fleet.of(tmp_path, ["a", "b"])
    for name, member in fleet.members.items():
        Authority.open(tmp_path / "names").issue(name, ["localhost"])
        certified_as(member.folder, tmp_path / "names" / name)
        changed(member.folder, 'address = "127.0.0.1', 'address = "localhost')
    with Node.from_file(fleet.members["b"].folder, train=False):
        got = findings(fleet.members["a"].folder, 10)
    assert got["certificate"].grade == "good"
    assert got["b"].grade == "good", got["b"]
