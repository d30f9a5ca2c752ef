"""A node's first settings: they can be read, nothing is overwritten, and nothing is left of what fails."""

import json
import re
import shutil
import stat
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import all_probed, free_port, until
from small_nodes import settings

from lntrust.core.errors import LNTrustError
from lntrust.fleet.node import Node
from lntrust.fleet.operations.certificates import NODE_FILES, Authority
from lntrust.fleet.operations.init import example_part, init_node
from lntrust.fleet.settings import REFUSED, load_node
from lntrust.fleet.training.data import load_data
from lntrust.methods.lntrust.presets import PRESETS


def init(folder: Path, **changes: Any) -> list[Path]:
    options: dict[str, Any] = {
        "name": "camera-1", "certificates": None, "neighbours": [], "listen": "127.0.0.1:7447",
        "http": "127.0.0.1:8080", "example": None,
    }  # fmt: skip
    return init_node(folder, **{**options, **changes})


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "node"
    made = init(folder, neighbours=["b=192.0.2.7:7447", "c=[::1]:1"], listen="0.0.0.0:7448", http="off")
    assert made == [folder / "NODE.toml"]
    got = load_node(folder)
    neighbours = {each.name: each.address for each in got.neighbours}
    assert neighbours == {"b": "192.0.2.7:7447", "c": "[::1]:1"}
    assert (got.name, got.network.listen, got.http.listen) == ("camera-1", "0.0.0.0:7448", "off")
    assert got.network.certificates == folder.resolve()


@pytest.mark.parametrize("number", [0, 7])
def test_an_example_runs_as_it_is(tmp_path: Path, number: int) -> None:
    made = init(tmp_path / "n", example=number)
    assert sorted(path.name for path in made) == ["NODE.toml", "data.npz", "shard.npz", "test.npz"]
    data = load_data(load_node(tmp_path / "n"))
    assert min(len(data.train), len(data.validation), len(data.shard)) > 0


DOCS = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text("utf-8")
BEST = {name: value for name, value in PRESETS["best"].settings.items() if name not in REFUSED}


@pytest.mark.parametrize("example", [None, 0])
def test_a_new_node_runs_the_best_that_can_be_lived(tmp_path: Path, example: int | None) -> None:
    """All of the preset but what a live node refuses, and the file says so."""
    init(tmp_path, example=example)
    assert load_node(tmp_path).trust.model_dump(exclude_defaults=True) == BEST
    path = tmp_path / "NODE.toml"
    text = path.read_text("utf-8")
    assert "lntrust+best" in text
    assert "# β: so much of the vote stays with the node" in text, "every line is explained"
    for name in PRESETS["best"].settings.keys() & set(REFUSED):
        assert f"`{name}`" in text
        line = f"{name} = {json.dumps(PRESETS['best'].settings[name])}"
        path.write_text(f"{text}{line}\n", "utf-8")
        with pytest.raises(LNTrustError, match=f"{name} = .*leave it out"):
            load_node(tmp_path)


def test_two_new_nodes_run_it(tmp_path: Path) -> None:
    """From `init`'s file to answers: few questions about the shard, and replies of 6 bytes."""
    authority = Authority.open(tmp_path / "keys")
    listen = {name: f"127.0.0.1:{free_port()}" for name in "ab"}
    for number, (name, other) in enumerate((("a", "b"), ("b", "a"))):
        authority.issue(name, ["127.0.0.1"])
        init(
            tmp_path / name, name=name, certificates=tmp_path / "keys" / name, listen=listen[name],
            neighbours=[f"{other}={listen[other]}"], http="off", example=number,
        )  # fmt: skip
    with Node.from_file(tmp_path / "a") as a, Node.from_file(tmp_path / "b") as b:
        for node in (a, b):
            status = until(node, all_probed, 120)
            assert status["error"] is None
            assert status["round"] == 80
            # About all of the shard every 20 rounds, and 5 probes; 720 kB, if it were asked about in each.
            assert 4 * 6 * 300 <= status["bytes"]["in"]["reply"] < 20_000
        test = dict(np.load(tmp_path / "a" / "test.npz"))
        assert (a.predict(test["x"]).probabilities.argmax(1) == test["y"]).mean() > 0.6


def test_the_documented_settings_can_be_lived() -> None:
    """Those of the preset `best`, but for what live nodes refuse."""
    (table,) = re.findall(r"```toml\n(\[trust\]\n.*?)```", DOCS, re.DOTALL)
    trust = settings(**tomllib.loads(table)).trust
    assert trust.model_dump(exclude_defaults=True) == BEST


def test_what_the_documents_copy_is_all_that_a_node_needs(tmp_path: Path, certified: Path) -> None:
    """Installed by the documented line, into a folder of its own, it can be loaded."""
    line = re.search(r"&& cp (.*) /etc/lntrust/", DOCS)
    assert line is not None
    init(tmp_path / "made", certificates=certified, http="off", example=0)
    (tmp_path / "installed").mkdir()
    for name in line[1].split():
        shutil.copy(tmp_path / "made" / name, tmp_path / "installed")
    with Node.from_file(tmp_path / "installed") as node:
        assert node.version


def test_parts_of_the_example_do_not_overlap() -> None:
    parts = [example_part(number) for number in range(3)]
    rows = [row.tobytes() for part in parts for each in part for row in each["x"]]
    repeated = len(rows) - len(set(rows))
    assert repeated < 5, "but for digits that are in the data twice"
    for number, (labelled, _, _) in enumerate(parts):
        counts = np.bincount(labelled["y"], minlength=10)
        assert counts.argmax() in (number, number + 1), "each has a taste of its own"
        assert (counts > 0).all()
    again = example_part(1)
    np.testing.assert_array_equal(again[0]["x"], parts[1][0]["x"])


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    """The folder of a node's certificate."""
    Authority.open(tmp_path / "fleet").issue("camera-1", ["127.0.0.1"])
    return tmp_path / "fleet" / "camera-1"


def test_certificates_are_copied_and_keys_stay_secret(tmp_path: Path, certified: Path) -> None:
    init(tmp_path / "n", certificates=certified)
    for name in NODE_FILES:
        assert (tmp_path / "n" / name).read_bytes() == (certified / name).read_bytes()
    assert stat.S_IMODE((tmp_path / "n" / "node.key").stat().st_mode) == 0o600
    assert not (tmp_path / "n" / "ca.key").exists()
    assert init(certified, certificates=certified) == [certified / "NODE.toml"], "it may live where they are"


@pytest.mark.parametrize("name", ["NODE.toml", "data.npz", "shard.npz", "test.npz", "node.key"])
def test_what_is_there_is_not_touched(tmp_path: Path, certified: Path, name: str) -> None:
    folder = tmp_path / "n"
    folder.mkdir()
    (folder / name).write_text("mine", "utf-8")
    with pytest.raises(LNTrustError, match=re.escape(f"{folder / name}: is there already; choose another")):
        init(folder, example=0, certificates=certified)
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == {name: "mine"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a b"}, "--name a b: a name has letters"),
        ({"neighbours": ["b"]}, "--neighbour b: must look like NAME=HOST:PORT"),
        ({"neighbours": ["b=host"]}, "--neighbour b=host: must look like"),
        ({"neighbours": ["=h:1"]}, "--neighbour =h:1: must look like"),
        ({"neighbours": ["b=host:port"]}, "neighbours.0.address = 'host:port'"),
        ({"neighbours": ["b=h:1", "b=h:2"]}, "names must differ"),
        ({"neighbours": ["camera-1=h:1"]}, "camera-1 is this node itself"),
        ({"listen": "here"}, "network.listen = 'here'"),
        ({"http": "here"}, "http.listen"),
        ({"certificates": Path("nowhere")}, "--certificates nowhere: has no node.pem"),
    ],
)
def test_of_what_fails_nothing_is_left(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LNTrustError, match=re.escape(message)):
        init(tmp_path / "n", example=0, **changes)
    assert not (tmp_path / "n").exists()
