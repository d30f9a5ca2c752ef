"""Each arrow is one direction: what a room may import, read from every import statement of the package."""

import ast
import graphlib
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "lntrust"
# What each room may import beside itself: nothing on the left of the flow imports from its right.
FLOW = ["world", "learners", "network", "methods", "experiment", "report"]
MAY: dict[str, set[str]] = {"core": set(), "trust": {"core"}, "study": {"core"}}
MAY |= {room: {"core", "trust", "study", *FLOW[:k]} for k, room in enumerate(FLOW)}
MAY["fleet"] = {"core", "trust", "study", *FLOW} - {"experiment", "report"}
MAY["cli"] = set(MAY)
MAY["lntrust"] = set(MAY) - {"cli"}  # the front door


class Arrow(NamedTuple):
    """One module imports another, there."""

    importer: str
    imported: str
    place: str

    def __str__(self) -> str:
        return f"{self.place}: {self.importer} → {self.imported}"


def arrows(source: Path) -> Iterator[Arrow]:
    """All imports of modules of ours, also those inside functions and those for types only.

    The package itself is loaded before any of its modules: who imports only that, for the version, is fine.
    """
    files = {path: path.relative_to(source.parent) for path in sorted(source.rglob("*.py"))}
    names = {path: ".".join(below.with_suffix("").parts) for path, below in files.items()}
    known = {name.removesuffix(".__init__") for name in names.values()}
    for path, name in names.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names if alias.name != "lntrust"]
            elif isinstance(node, ast.ImportFrom):
                above = name.split(".")[: -node.level] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                each = [
                    f"{base}.{a.name}" for a in node.names if (base, a.name) != ("lntrust", "__version__")
                ]
                found = [one if one in known else base for one in each]
            else:
                continue
            for imported in sorted(known.intersection(found)):
                yield Arrow(name.removesuffix(".__init__"), imported, f"{files[path]}:{node.lineno}")


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def against_the_flow(source: Path) -> list[str]:
    out = []
    for arrow in arrows(source):
        a, b = room(arrow.importer), room(arrow.imported)
        if a != b and b not in MAY[a]:
            out.append(f"{arrow}: {a} may import {', '.join(sorted(MAY[a])) or 'no other room'}, not {b}")
    return out


def circle(source: Path) -> list[str]:
    """Modules that import each other in a circle, an arrow a line; empty if none do."""
    found = {(arrow.importer, arrow.imported): str(arrow) for arrow in arrows(source)}
    graph: dict[str, set[str]] = {}
    for importer, imported in found:
        graph.setdefault(importer, set()).add(imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        path = error.args[1]  # each is imported by the next
        return [found[b, a] for a, b in pairwise(path)]
    return []


def test_nothing_imports_against_the_flow() -> None:
    wrong = against_the_flow(SOURCE)
    assert not wrong, "\n".join(["imports against the flow:", *wrong])


def test_no_modules_import_each_other_in_a_circle() -> None:
    wrong = circle(SOURCE)
    assert not wrong, "\n".join(["modules import each other in a circle:", *wrong])


def package(folder: Path, files: dict[str, str]) -> Path:
    """A package of these files, and the front doors of its rooms."""
    every = {f"{part}/__init__.py": "" for part in (*MAY, ".")} | {"methods/base.py": ""} | files
    for name, text in every.items():
        path = folder / "lntrust" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / "lntrust"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("world/a.py", "def f():\n    from lntrust.methods import base", r"world/a.py:2: .*not methods"),
        ("trust/a.py", "import lntrust.study", r"trust/a.py:1: .*: trust may import core, not study"),
        ("fleet/a.py", "from ..experiment import x", r"fleet/a.py:1: lntrust.fleet.a → lntrust.experiment: "),
        ("network/__init__.py", "from ..methods import base", r"lntrust.network → lntrust.methods.base: "),
        ("__init__.py", "from lntrust import cli", r"lntrust/__init__.py:1: lntrust → lntrust.cli: "),
        ("core/a.py", "from lntrust import load_study", r"core may import no other room, not lntrust"),
    ],
)
def test_a_wrong_arrow_is_named_with_file_and_line(file: str, text: str, said: str, tmp_path: Path) -> None:
    (wrong,) = against_the_flow(package(tmp_path, {file: text}))
    assert re.search(said, wrong)


def test_a_circle_is_named_arrow_by_arrow(tmp_path: Path) -> None:
    a = "def f():\n    from lntrust.core import b\n"
    b = "import lntrust\nfrom lntrust import __version__\nfrom lntrust.core.a import f\n"
    source = package(tmp_path, {"core/a.py": a, "core/b.py": b})
    assert against_the_flow(source) == []
    assert sorted(circle(source)) == [
        "lntrust/core/a.py:2: lntrust.core.a → lntrust.core.b",
        "lntrust/core/b.py:3: lntrust.core.b → lntrust.core.a",
    ]
