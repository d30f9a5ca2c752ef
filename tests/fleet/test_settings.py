"""A NODE.toml: what is wrong with one is told by field, value and remedy; its paths lie beside it."""

import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import ValidationError
from small_nodes import settings

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import load_object
from lntrust.fleet.settings import REFUSED, NodeSettings, fields_of, load_node
from lntrust.methods.lntrust.presets import PRESETS

GOOD = """
name = "camera-1"
[input]
shape = [3, 4]
classes = ["no", "yes"]
[model]
kind = "linear"
[data]
labelled = "data.npz"
probe_with = "validation"
shard = "none"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "NODE.toml"
    path.write_text(text, "utf-8")
    return path


def test_what_is_needed_is_enough(tmp_path: Path) -> None:
    got = load_node(written(tmp_path, GOOD))
    assert (got.name, got.input.shape, got.input.dtype) == ("camera-1", (3, 4), "float32")
    assert got.neighbours == []
    assert load_node(tmp_path) == got, "a folder stands for the file in it"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "camera-1"', "", "name is missing"),
        ('name = "camera-1"', 'name = "a/b"', "name = 'a/b': string should match pattern"),
        ("shape = [3, 4]", "shape = [3, 0]", "input.shape.1 = 0: input should be greater than or equal to 1"),
        ("shape = [3, 4]", "shape = [3, 4]\nsize = 3", "unknown field input.size; known here: name, shape"),
        ("shape = [3, 4]", "shape = [3, 4]\ndtyp = 'uint8'", "input.dtyp; did you mean dtype?"),
        ('["no", "yes"]', '["no", "no"]', "classes ['no', 'no']: names must differ"),
        ('["no", "yes"]', '["no"]', "input.classes"),
        ('kind = "linear"', 'kind = "linear"\nscale = nan', "model.scale = nan"),
        ('shard = "none"', "", "data.shard is missing"),
        ('shard = "none"', 'shard = "none"\nval_fraction = 1.0', "data.val_fraction = 1.0"),
        ("", "[limits]\ndeadline = 0", "limits.deadline = 0"),
        ("", '[network]\nlisten = "127.0.0.1"', "network.listen = '127.0.0.1'"),
        ("", '[network]\nlisten = "http://127.0.0.1:80"', "network.listen = 'http://127.0.0.1:80'"),
        ("", '[network]\nlisten = "a b:80"', "network.listen = 'a b:80'"),
        ("", '[network]\nlisten = "h:８０"', "network.listen = 'h:８０'"),
        ("", '[network]\nclock = "lockstep"', "lockstep needs network.number"),
        ("", '[training]\nschedule = "random_node"', "training: schedule = random_node needs somebody"),
        ("", "[trust]\nbudgets = 3", "unknown field trust.budgets; did you mean budget?"),
        ("", '[trust]\nquery = "handle"', "query = handle: live nodes always send the inputs"),
        ("", "[trust]\nfinal_rounds = 3", "final_rounds = 3: would train on validation labels"),
        ("", "[trust]\nsplit_validation = true", "split_validation = true: is for a last fit"),
        ("", '[trust]\nreply = "top"', "trust.reply = 'top'"),
        ("", '[[neighbours]]\nname = "b"\nport = 3', "neighbours.0.port"),
        ("", '[[neighbours]]\nname = "camera-1"', "camera-1 is this node itself"),
        ("", '[[neighbours]]\nname = "b"\n[[neighbours]]\nname = "b"', "names must differ, not ['b', 'b']"),
        ("", '[[neighbours]]\nname = "b"\naddress = "h:1"\nurl = "http://h/m"', "an address or a url, not"),
        ("", '[[neighbours]]\nname = "b"\nurl = "ftp://h"', "neighbours.0.url = 'ftp://h'"),
        ("", '[[neighbours]]\nname = "b"\ntoken = "t"', "neighbour b: input, classes and token belong to"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = GOOD.replace(old, new) if old else GOOD + new
    assert text != GOOD
    path = written(tmp_path, text)
    with pytest.raises(LNTrustError, match=re.escape(message)) as caught:
        load_node(path)
    assert str(caught.value).startswith(f"node {path}: ")


def test_the_few_likeliest_of_very_many_classes_have_no_numbers() -> None:
    many = {"shape": (1,), "classes": tuple(map(str, range((1 << 15) + 1)))}
    settings(input=many, trust={"reply": "uint8", "query": "inputs"})
    with pytest.raises(ValidationError, match="numbers at most 32768 classes; take uint8"):
        settings(input=many, trust={"reply": "top3"})


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(LNTrustError, match=r"name = 'a b'.*\n.*input\.shape = 'x'"):
        load_node(written(tmp_path, GOOD.replace('"camera-1"', '"a b"').replace("[3, 4]", '"x"')))


@pytest.mark.parametrize("text", [None, b"name = ", b"\xff\xfe", b"[input]\n[input]"])
def test_a_file_that_is_none(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "NODE.toml"
    if text is not None:
        path.write_bytes(text)
    for place in (tmp_path, path):
        with pytest.raises(LNTrustError, match=re.escape(f"{path}: not a readable TOML file")):
            load_node(place)


# -- paths ----------------------------------------------------------------------------------------


def test_files_lie_beside_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD.replace('"validation"', '"more/probe.parquet"').replace('"none"', '"shard.npz"')
    text = text.replace('kind = "linear"', 'kind = "onnx"\noptions = { file = "m.onnx" }\nweights = "w.st"')
    text += '[network]\ncertificates = "keys"\n[http]\ntoken = "t"\n[life]\nstate = "/var/state"\n'
    text += '[[neighbours]]\nname = "b"\nurl = "http://h/v2/models/m"\ntoken = "b.txt"\n'
    text += '[[neighbours]]\nname = "c"\naddress = "[::1]:7447"\n'
    (tmp_path / "node").mkdir()
    written(tmp_path / "node", text)
    monkeypatch.chdir(tmp_path)
    got, here = load_node("node"), tmp_path / "node"
    sources = (got.data.labelled, got.data.probe_with, got.data.shard, got.model.options["file"])
    assert sources == tuple(str(here / n) for n in ("data.npz", "more/probe.parquet", "shard.npz", "m.onnx"))
    paths = (got.model.weights, got.network.certificates, got.http.token, got.neighbours[0].token)
    assert paths == tuple(here / name for name in ("w.st", "keys", "t", "b.txt"))
    assert got.life.state == Path("/var/state"), "a full path stays as it is"
    assert [each.name for each in got.peers] == ["c"], "the other is a server"


def test_what_is_no_file_stays_as_it_is(tmp_path: Path) -> None:
    text = GOOD.replace('"data.npz"', '"cameras.data:load"')
    text = text.replace('kind = "linear"', 'kind = "my.models:make"\noptions = { file = "m" }')
    got = load_node(written(tmp_path, text))
    assert (got.data.labelled, got.data.shard) == ("cameras.data:load", "none")
    assert got.model.options == {"file": "m"}, "options of a factory are its own"
    assert got.http.token is None
    assert got.life.state == tmp_path / "state"


# -- made by an earlier version -------------------------------------------------------------------

OLD = Path(__file__).parents[1] / "fixtures" / "made_by_3123855"


@pytest.mark.parametrize("node", sorted(path.name for path in (OLD / "nodes").glob("init-*")))
def test_what_init_wrote_is_the_same_under_todays_names(node: str) -> None:
    trust = load_node(OLD / "nodes" / node).trust.model_dump(exclude_defaults=True)
    best = PRESETS["best"].settings
    assert trust == {name: value for name, value in best.items() if name not in REFUSED}


def test_settings_that_are_gone_are_ignored_at_their_defaults() -> None:
    trust = load_node(OLD / "nodes" / "hand-defaults").trust
    assert (trust.typical_margin, trust.prior_wins, trust.top_k) == (True, 0.25, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("answer_k", 2), ("calibrate", True), ("importance_power", 0.5), ("look_back", 0.8), ("probe_others", 2),
     ("training_gate", "evidence")],
)  # fmt: skip
def test_settings_that_are_gone_are_refused_else(name: str, value: Any) -> None:
    path = OLD / "nodes" / f"hand-{name}" / "NODE.toml"
    with pytest.raises(LNTrustError) as caught:
        load_node(path)
    assert str(caught.value).startswith(f"node {path}: trust: {name} = {value!r}: no longer there (docs/")
    assert len(str(caught.value).splitlines()) == 1


def test_the_demonstrations_view_has_moved() -> None:
    view = load_object(str(load_node(OLD / "nodes" / "demo").model.view), "model.view")
    assert view(np.zeros((2, 8, 8))).shape == (2, 1, 8, 8)


# -- the list of fields ---------------------------------------------------------------------------


def test_every_field_is_listed_and_explained() -> None:
    listed = {path: (default, meaning) for path, default, meaning in fields_of(NodeSettings)}
    fields = []
    for name, info in NodeSettings.model_fields.items():
        (kind,) = get_args(info.annotation) or (info.annotation,)
        path = f"[[{name}]]" if get_args(info.annotation) else name
        fields += [f"{path}.{field}" for field in getattr(kind, "model_fields", ())] or [name]
    assert list(listed) == fields
    assert {"name", "data.shard", "[[neighbours]].url", "trust.budget"} < set(fields)
    assert all(meaning for _, meaning in listed.values())
    assert listed["name"][0] == listed["data.shard"][0] == "required"
    assert (listed["http.token"][0], listed["data.deployed"][0]) == ("none", "true"), "as TOML has it"
    assert listed["limits.deadline"][0] == "1.0"
