"""A node's first settings: a NODE.toml with every choice explained, and data to try it with."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lntrust.core.errors import LNTrustError
from lntrust.core.files import write_whole
from lntrust.core.randomness import generator
from lntrust.fleet.operations.certificates import NAME
from lntrust.fleet.settings import REFUSED, parse_node
from lntrust.methods.lntrust.presets import PRESETS

EXAMPLE_CLASSES = tuple("0123456789")
_LABELLED, _SHARD = 120, 300  # examples of one part of the digits

_TEMPLATE = """\
# A live node. Every field, with its default: lntrust node settings
name = {name}                 # as in its certificate

[input]                       # all nodes of the fleet must agree on this table
name = "input"
shape = {shape}               # of one input
dtype = {dtype}
classes = {classes}

[model]
{model}

[data]
# Labels never leave this device. Inputs do, if you say so here: neighbours see what they are asked about.
{data}
deployed = true               # false: what clients ask about is shown to nobody, and answered alone

[network]
listen = {listen}             # where neighbours reach this node
certificates = "."            # node.pem, node.key, ca.pem
choose = "listed"             # "allowed": of the neighbours below, the fastest of those that are there
{neighbours}
[http]
listen = {http}               # where clients reach it; "off": nowhere
# token = "token.txt"         # a file with a bearer token that clients must show

[life]
state = "state"               # all that a restart needs
log = "json"

[training]
stage1_rounds = 20            # alone
stage2_rounds = 60            # with the neighbours
lr = {lr}
batch = 32

[trust]
# The preset lntrust+best, but for two settings that a live node refuses: `query`, since it always sends its
# inputs, and `final_rounds`, since it goes on probing with its validation labels. What each line does, and
# what it costs: "Fewer bytes, and safer" in docs/fleet.md. Without them it is the method as published.
{trust}
"""

_NOTES = {
    "reply": "the 3 likeliest classes in 6 bytes",
    "recall": "ask about the whole shard every 20 rounds, and remember the answers",
    "top_k": "learn from the two most trusted only",
    "refresh": "probe every 20 rounds",
    "sample": "inputs of the shard in a probe",
    "certainty": "deployed: ask one after another, until sure",
    "typical_margin": "going by how far the first class usually leads in what neighbours say",
    "importance": "every input of the shard counts the same",
    "self_share": "keep a fifth of the vote",
    "prior": "few labels: trust in proportion to accuracy",
    "prior_examples": "as if so many labels said so",
    "deployment_gate": "answer together where that is likely to be better",
    "evidence": "with this probability",
    "prior_wins": "so many examples for each neighbour count as won in advance",
}


def begin(
    folder: Path,
    name: str,
    certificates: Path | None,
    neighbours: Sequence[str],
    listen: str,
    http: str,
    example: int | None,
) -> list[Path]:
    """Write the files; returns which. Nothing that is there already is touched."""
    if not NAME.fullmatch(name):
        raise LNTrustError(f"--name {name}: a name has letters, digits, dots, dashes and underscores")
    known = [_neighbour(text) for text in neighbours]
    copied = [] if certificates is None else _certificates(certificates)
    copied = [file for file in copied if file.resolve() != (folder / file.name).resolve()]
    path = folder / "NODE.toml"
    for target in (path, *(folder / file.name for file in copied), *_examples(folder, example)):
        if target.exists():
            raise LNTrustError(f"{target}: is there already; choose another folder, or take it away first")
    text = _text(name, known, listen, http, example)
    parse_node(text, str(path))  # what is written can be read
    write_whole(path, lambda temporary: temporary.write_text(text, "utf-8"))
    made = [path]
    for source in copied:
        target = folder / source.name
        mode = 0o600 if source.suffix == ".key" else 0o644
        write_whole(target, lambda temporary, source=source: shutil.copyfile(source, temporary), mode)  # type: ignore[misc]
        made.append(target)
    if example is not None:
        made += _example(folder, example)
    return made


def _neighbour(text: str) -> tuple[str, str]:
    name, sign, address = text.partition("=")
    if not sign or not NAME.fullmatch(name) or ":" not in address:
        raise LNTrustError(f"--neighbour {text}: must look like NAME=HOST:PORT")
    return name, address


def _certificates(folder: Path) -> list[Path]:
    files = [folder / name for name in ("node.pem", "node.key", "ca.pem")]
    for file in files:
        if not file.is_file():
            raise LNTrustError(f"--certificates {folder}: has no {file.name}")
    return files


def _text(name: str, neighbours: list[tuple[str, str]], listen: str, http: str, example: int | None) -> str:
    tables = "".join(
        f"\n[[neighbours]]\nname = {json.dumps(n)}\naddress = {json.dumps(a)}\n" for n, a in neighbours
    )
    hint = '\n# [[neighbours]]\n# name = "camera-2"\n# address = "192.168.1.12:7447"\n'
    if example is None:
        model = 'kind = "mlp"                  # or a scikit-learn class, "onnx", package.module:factory'
        data = (
            'labelled = "data.npz"         # x and y; or .parquet, or package.module:loader\n'
            'probe_with = "validation"     # labelled inputs shown to them to learn whom to trust; "none"\n'
            'shard = "none"                # unlabelled ones shown to learn from their answers: a file'
        )
        shape, dtype, classes, lr = "[64]", '"float32"', '["no", "yes"]', 0.01
    else:
        model = 'kind = "mlp"\noptions = { hidden = 64, dropout = 0.2 }\nscale = 0.0625               # 1/16'
        data = (
            'labelled = "data.npz"         # x and y\n'
            'probe_with = "validation"     # labelled inputs shown to them to learn whom to trust; "none"\n'
            'shard = "shard.npz"           # unlabelled ones shown to learn from their answers; "none"'
        )
        shape, dtype, classes, lr = "[8, 8]", '"uint8"', json.dumps(EXAMPLE_CLASSES), 0.05
    return _TEMPLATE.format(
        name=json.dumps(name), shape=shape, dtype=dtype, classes=classes, model=model, data=data,
        listen=json.dumps(listen), http=json.dumps(http), neighbours=tables or hint, lr=lr,
        trust=_trust(),
    )  # fmt: skip


def _trust() -> str:
    """The preset `best`, as far as it can be lived."""
    chosen = {name: each for name, each in PRESETS["best"].settings.items() if name not in REFUSED}
    lines = {name: f"{name} = {json.dumps(value)}" for name, value in chosen.items()}
    return "\n".join(f"{line:<30}# {_NOTES[name]}" for name, line in lines.items())


def example_part(number: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Part N of scikit-learn's digits: labelled with a taste for two classes, a shard, and a test set.

    Parts are drawn from one shuffle and do not overlap as long as N < 3; beyond, they begin again.
    """
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = x.reshape(-1, 8, 8).astype(np.uint8)
    order = generator(0, "partition").permutation(len(y))
    size = len(order) // 3
    mine = order[(number % 3) * size : (number % 3 + 1) * size]
    favoured = {number % 10, (number + 1) % 10}
    first = np.array([i for i in mine if y[i] in favoured], dtype=np.int64)
    rest = np.array([i for i in mine if y[i] not in favoured], dtype=np.int64)
    labelled = np.concatenate([first[: _LABELLED // 2], rest[: _LABELLED - len(first[: _LABELLED // 2])]])
    left = np.setdiff1d(mine, labelled)
    left = left[generator(0, "partition", number).permutation(len(left))]
    shard, test = left[:_SHARD], left[_SHARD:]
    return {"x": images[labelled], "y": y[labelled]}, {"x": images[shard]}, {"x": images[test], "y": y[test]}


def _examples(folder: Path, example: int | None) -> list[Path]:
    names = () if example is None else ("data.npz", "shard.npz", "test.npz")
    return [folder / name for name in names]


def _example(folder: Path, number: int) -> list[Path]:
    made = _examples(folder, number)
    for path, arrays in zip(made, example_part(number), strict=True):
        write_whole(path, lambda temporary, arrays=arrays: _save(temporary, arrays))  # type: ignore[misc]
    return made


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
