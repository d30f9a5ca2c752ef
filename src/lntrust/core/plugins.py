"""Users' own classes and functions, named `package.module:Name`: found, told apart by content, and blamed."""

import ast
import hashlib
import importlib
import importlib.util
import secrets
import sys
import sysconfig
import time
import traceback
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lntrust.core.errors import LNTrustError

_INSTALLED = ("site-packages", "dist-packages")
_OURS = Path(__file__).parents[1].resolve()
_STDLIB = Path(sysconfig.get_path("stdlib"))
_SINCE = time.time()  # what was edited after it may have been loaded before that
_files: dict[str, str] = {}  # full path → shown name, of every file of the users' that was loaded
_texts: dict[Path, tuple[object, bytes, str]] = {}  # files as they were loaded: the loading's mark, digests
_BESIDE: list[str] = []  # folders of users' own modules, beside the working folder


@dataclass(frozen=True)
class _Loaded:
    """An object of a user's, and what it was made from."""

    thing: object
    marks: dict[str, object]  # by module: the mark of its loading
    digests: dict[str, str]  # by file

    def still(self, thing: object) -> bool:
        """Whether neither it nor a module behind it was loaded again since."""
        return thing is self.thing and all(_mark(name) is mark for name, mark in self.marks.items())


_known: dict[str, _Loaded] = {}


def look_in(folder: Path) -> None:
    """From now on the user's modules may lie here, too."""
    if str(folder) not in _BESIDE:
        _BESIDE.append(str(folder))


def load_object(name: str, field: str) -> Any:
    """The object that `package.module:Name` names. `field` is what to blame in the message."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise LNTrustError(f"{field} = {name!r}: must look like package.module:Name")
    before = frozenset(sys.modules)
    try:
        _find(module_name.partition(".")[0])
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's, and may fail in any way
        why = f"{type(error).__name__}: {error}{_place(error)}{_hidden(module_name)}"
        raise LNTrustError(f"{field} = {name!r}: cannot import {module_name}: {why}") from error
    if not hasattr(module, attribute):
        where = f" ({module.__file__})" if getattr(module, "__file__", None) else ""
        why = f"{module_name} has nothing named {attribute}{where}{_hidden(module_name)}"
        raise LNTrustError(f"{field} = {name!r}: {why}")
    found = getattr(module, attribute)
    if name not in _known or not _known[name].still(found):
        _known[name] = _sources(module, attribute, before)  # now, while the files are what was loaded
    return found


def _find(package: str) -> None:
    """Look in the user's folders for what is not installed, and only for that.

    They come last, and not before they are needed: else a file there would be imported in the place of any
    library of that name. A node has the folder of its settings, and never looks in the working folder.
    """
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    sys.path += [each for each in _folders() if each not in sys.path]


def _folders() -> list[str]:
    return _BESIDE or [str(Path.cwd())]


def _hidden(module: str) -> str:
    """For a message: what of the user's would have been meant, were there no library of its name."""
    package = module.partition(".")[0]
    found = getattr(sys.modules.get(package), "__spec__", None)
    if found is None or found.origin is None:  # it was not found at all, or is a folder of the user's
        return ""
    of_package = bool(found.submodule_search_locations)
    taken_from = Path(found.origin).resolve().parents[of_package] if found.has_location else None
    for folder in map(Path, _folders()):
        for own in (f"{package}.py", package):
            if (folder / own).exists() and folder.resolve() != taken_from:
                return f"; it hides your {own} in {folder}: rename that"
    return ""


# -- what it was made of --------------------------------------------------------------------------


def sources_of(name: str, field: str) -> dict[str, str]:
    """Digests of the files behind `package.module:Name`: the module's and what it imports from its folder.

    As they were when this process loaded them. Where that cannot be known, since code has no file (a
    notebook's) or was imported before the file was edited, the digest is a new one: no result is taken for
    its own. The folder is the one that the module's first package lies in; of what is installed, the module's
    own. Imports are read from the text: what is imported by a name made up at run time is not seen, and
    neither are files that the code opens.
    """
    load_object(name, field)
    return _known[name].digests


def _sources(module: ModuleType, attribute: str, before: Collection[str]) -> _Loaded:
    """`before`: the modules that were loaded already when this one was asked for."""
    name, thing = module.__name__, getattr(module, attribute)
    file = Path(getattr(module, "__file__", None) or "").absolute()
    if not file.is_file():
        return _Loaded(thing, {}, {f"{name}:{attribute}": _like_no_other()})
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    installed = root == _STDLIB or any(part in _INSTALLED for part in root.parts)
    found: dict[str, str] = {}
    marks: dict[str, object] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        shown = path.relative_to(root).as_posix()
        if shown not in found and path.is_file():
            behind = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            marks[behind] = _mark(behind)
            content, found[shown] = _as_loaded(path, marks[behind], behind in before)
            if not path.resolve().is_relative_to(_OURS):  # what a name of ours leads to is no user's
                _files[str(path.resolve())] = shown
            near = _imported(content, path, root)
            waiting += [each for each in near if not installed or each.parent == file.parent != root]
    return _Loaded(thing, marks, dict(sorted(found.items())))


def _mark(module: str) -> object:
    """Another one whenever a module is loaded again; None where it is not."""
    return getattr(sys.modules.get(module), "__spec__", None)


def _as_loaded(path: Path, mark: object, before: bool) -> tuple[bytes, str]:
    """A file as it was when its module was loaded, or first looked at, and its digest.

    `before`: the module was loaded before it was first looked at, at a time that nobody knows.
    """
    if path not in _texts or _texts[path][0] is not mark:
        edited, content = path.stat().st_mtime > _SINCE, path.read_bytes()
        _texts[path] = (mark, content, _like_no_other() if before and edited else _digest(content))
    return _texts[path][1:]


def _imported(content: bytes, path: Path, root: Path) -> Iterator[Path]:
    """Files below `root` that a file's import statements may mean."""
    if path.suffix != ".py":
        return
    package = path.parent.relative_to(root).parts
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # it was not loaded then
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = list(package[: len(package) - node.level + 1]) if node.level else []
            base = [*above, *(node.module.split(".") if node.module else [])]
            names = [base, *([*base, alias.name] for alias in node.names)]
        else:
            continue
        for parts in names:
            for k in range(1, len(parts) + 1):  # packages on the way run their __init__
                yield root.joinpath(*parts[:k], "__init__.py")
            if parts:
                yield root.joinpath(*parts[:-1], f"{parts[-1]}.py")


def file_digest(path: Path) -> str:
    return _digest(path.read_bytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _like_no_other() -> str:
    return secrets.token_hex(8)


# -- whose fault ----------------------------------------------------------------------------------


def _place(error: Exception) -> str:
    """Where an import has failed, for a message."""
    if isinstance(error, SyntaxError):  # says so itself
        return ""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    ours = frame.filename == __file__ or frame.filename.startswith("<")  # the module is not there at all
    return "" if ours else f" ({Path(frame.filename).name}:{frame.lineno})"


def users_fault(error: BaseException) -> str | None:
    """Where in a user's own code an exception came up, or in what that code called; none: nowhere there."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        shown = _files.get(str(Path(frame.filename).resolve()))
        if shown is not None:
            return f"{shown}:{frame.lineno}, in {frame.name}: {type(error).__name__}: {error}"
    return None
