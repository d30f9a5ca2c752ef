"""Users' own classes by `package.module:Name`."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from lntrust import LNTrustError, load_study
from lntrust.core.plugins import file_digest, load_object, sources_of, users_fault

Write = Callable[..., Path]
SMALL, LARGE = "class X:\n    size = 1\n", "class X:\n    size = 22\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Files of a user's, in the working folder; what is imported from there is undone afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        importlib.invalidate_caches()
        return tmp_path / next(iter(files))

    return write


def refused(name: str, field: str = "--method") -> str:
    with pytest.raises(LNTrustError) as refusal:
        load_object(name, field)
    return str(refusal.value)


def sources(name: str) -> dict[str, str]:
    return sources_of(name, "kind")


class TestLoading:
    def test_what_is_installed_is_not_taken_from_the_working_folder(
        self, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not the object itself, and nothing that is imported after it."""
        write({"plugin_of_mine.py": "ANSWER = 42\n"})
        for name in ("wave", "poplib"):  # of the standard library, and imported by nobody here
            monkeypatch.delitem(sys.modules, name, raising=False)
            write({f"{name}.py": "PLANTED = True\n"})
        before = list(sys.path)
        assert load_object("wave:open", "kind").__module__ == "wave"
        assert sys.path == before, "the folder is not looked at before it has to be"
        assert load_object("plugin_of_mine:ANSWER", "kind") == 42
        assert sys.path == [*before, str(tmp_path)], "and then it comes last"
        assert not hasattr(importlib.import_module("poplib"), "PLANTED")

    def test_what_is_not_there(self, write: Write) -> None:
        for name in (":Name", "module:", "a/b:Name", ".module:Name", "a..b:Name", "a b:c"):
            assert refused(name) == f"--method = {name!r}: must look like package.module:Name"
        assert "--method = 'nowhere_at_all:X': cannot import nowhere_at_all" in refused("nowhere_at_all:X")
        assert "kind = 'math:Tau': math has nothing named Tau" in refused("math:Tau", "kind")
        file = write({"plugin_in_sight.py": ""})
        assert refused("plugin_in_sight:Eager").endswith(f"nothing named Eager ({file})")  # nothing hides it
        for text, why in (("def broken(:\n", "SyntaxError"), ("1 / 0\n", "ZeroDivisionError")):
            write({f"plugin_with_{why}.py": text})
            assert f"cannot import plugin_with_{why}: {why}" in refused(f"plugin_with_{why}:X")

    @pytest.mark.parametrize(
        ("name", "file"),
        [
            ("statistics:Eager", "statistics.py"),  # of the standard library
            ("numpy:Eager", "numpy/__init__.py"),  # installed
            ("numpy.eager:Eager", "numpy/eager.py"),
            ("math:Eager", "math.py"),  # in no file
        ],
    )
    def test_a_file_that_a_library_hides(self, write: Write, tmp_path: Path, name: str, file: str) -> None:
        write({file: "class Eager:\n    pass\n"})
        own = file.partition("/")[0]
        assert refused(name).endswith(f"; it hides your {own} in {tmp_path}: rename that")


class TestSources:
    """What an object was made from: its module, and what that takes from the same folder."""

    def test_of_a_module_in_a_package(self, write: Write, tmp_path: Path) -> None:
        imports = "import json\nimport numpy as np\nfrom . import near\nfrom ..util import f\nimport plug_b\n"
        near = "def late():\n    from plug_a import seldom\n"
        files = {
            "plug_a/__init__.py": "", "plug_a/methods/__init__.py": "", "plug_a/methods/near.py": near,
            "plug_a/methods/mine.py": f"{imports}X = 1\n", "plug_a/util.py": "f = 1\n",
            "plug_a/seldom.py": "", "plug_b.py": "",
        }  # fmt: skip
        write({**files, "plug_a/unused.py": "", "numpy_not.py": ""})
        assert set(sources("plug_a.methods.mine:X")) == set(files)
        (tmp_path / "plug_link").symlink_to(tmp_path / "plug_a")
        assert "plug_link/methods/near.py" in sources("plug_link.methods.mine:X")

    def test_of_what_is_installed_the_folder_of_the_module(self) -> None:
        assert list(sources("collections.abc:Iterator")) == ["collections/abc.py"]
        files = sources("sklearn.ensemble:ExtraTreesClassifier")
        assert {"sklearn/ensemble/__init__.py", "sklearn/ensemble/_forest.py"} <= set(files)
        assert {Path(file).parent for file in files} == {Path("sklearn/ensemble")}

    def test_follow_what_is_loaded_again_and_only_that(self, write: Write) -> None:
        files = {"plug_user.py": f"import plug_helper\n\n{SMALL}", "plug_helper.py": "SIZE = 1\n"}
        write(files)
        before = sources("plug_user:X")
        write({name: f"{text}# changed\n" for name, text in files.items()})
        assert sources("plug_user:X") == before, "that is what was loaded"
        importlib.reload(sys.modules["plug_helper"])
        after = sources("plug_user:X")
        assert after["plug_helper.py"] != before["plug_helper.py"]
        assert after["plug_user.py"] == before["plug_user.py"], "that is still what runs"
        importlib.reload(sys.modules["plug_user"])
        assert sources("plug_user:X")["plug_user.py"] != before["plug_user.py"]

    def test_of_code_without_a_file_nothing_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in a notebook: whatever it is, it is taken for no other."""
        found = []
        for text in (SMALL, SMALL, LARGE):
            module = ModuleType("plug_cell")
            exec(text, module.__dict__)
            monkeypatch.setitem(sys.modules, "plug_cell", module)
            found.append(sources("plug_cell:X")["plug_cell:X"])
            assert sources("plug_cell:X")["plug_cell:X"] == found[-1], "it is still the same"
        assert len(set(found)) == 3

    def test_of_a_module_that_was_edited_after_its_import_nothing_is_known(
        self, write: Write, tmp_path: Path
    ) -> None:
        """Else the old code's result would be kept under the new file's name."""
        names = ("plug_early", "plug_on_time", "plug_old")
        write({f"{name}.py": SMALL for name in names})
        os.utime(tmp_path / "plug_old.py", (0, 0))  # long before its import
        sys.path.append(str(tmp_path))
        for name in ("plug_early", "plug_old"):
            importlib.import_module(name)
        write({f"{name}.py": LARGE for name in names[:2]})
        truth = {name: file_digest(tmp_path / f"{name}.py") for name in names}
        assert sources("plug_early:X")["plug_early.py"] != truth["plug_early"]
        for name in names[1:]:
            assert sources(f"{name}:X") == {f"{name}.py": truth[name]}


def test_whose_fault(write: Write) -> None:
    write({"plugin_at_fault.py": "def f(x):\n    return g(x)\n\n\ndef g(x):\n    return int(x)\n"})
    f = load_object("plugin_at_fault:f", "kind")
    with pytest.raises(ValueError, match="invalid") as users:
        f("one")
    assert str(users_fault(users.value)).startswith("plugin_at_fault.py:6, in g: ValueError: invalid literal")
    with pytest.raises(ValueError, match="invalid") as ours:
        int("one")
    assert users_fault(ours.value) is None
    load_object("lntrust.study:load_study", "--method")  # what a name of ours leads to is nobody else's
    with pytest.raises(LNTrustError) as caught:
        load_study("no-such-study")
    assert users_fault(caught.value) is None
