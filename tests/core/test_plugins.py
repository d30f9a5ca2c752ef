"""Users' own classes by `package.module:Name`."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lntrust import LNTrustError, load_study
from lntrust.core.plugins import file_digest, load_object, sources_of, users_fault


def test_an_installed_object() -> None:
    assert load_object("collections.abc:Iterator", "--method").__name__ == "Iterator"


def test_a_module_beside_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_beside_me.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(tmp_path)  # undone afterwards, with what load_object adds
    monkeypatch.chdir(tmp_path)
    assert load_object("plugin_beside_me:ANSWER", "kind") == 42


def test_what_is_installed_is_not_taken_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the object itself, and nothing that is imported after it."""
    (tmp_path / "plugin_of_mine.py").write_text("ANSWER = 42\n")
    for name in ("wave", "poplib"):  # of the standard library, and imported by nobody here
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text("PLANTED = True\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert load_object("wave:open", "kind").__module__ == "wave"
    assert sys.path == before, "the folder is not looked at before it has to be"
    assert load_object("plugin_of_mine:ANSWER", "kind") == 42
    assert sys.path[: len(before)] == before, "and then it comes last"
    assert sys.path[-1] == str(tmp_path)
    assert not hasattr(importlib.import_module("poplib"), "PLANTED")


@pytest.mark.parametrize("name", [":Name", "module:", "a/b:Name", ".module:Name", "a..b:Name", "a b:c"])
def test_a_name_of_another_shape(name: str) -> None:
    with pytest.raises(LNTrustError) as refusal:
        load_object(name, "--method")
    assert str(refusal.value) == f"--method = {name!r}: must look like package.module:Name"


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(LNTrustError, match="--method = 'nowhere_at_all:X': cannot import nowhere_at_all"):
        load_object("nowhere_at_all:X", "--method")


def test_a_name_that_is_not_in_it() -> None:
    with pytest.raises(LNTrustError, match=r"kind = 'math:Tau': math has nothing named Tau"):
        load_object("math:Tau", "kind")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("statistics:Eager", "statistics.py"),  # of the standard library
        ("numpy:Eager", "numpy/__init__.py"),  # installed
        ("numpy.eager:Eager", "numpy/eager.py"),
        ("math:Eager", "math.py"),  # in no file
    ],
)
def test_a_file_that_a_library_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("class Eager:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LNTrustError) as refusal:
        load_object(name, "--method")
    own = file.partition("/")[0]
    assert str(refusal.value).endswith(f"; it hides your {own} in {tmp_path}: rename that")


def test_a_file_that_nothing_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_in_sight.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LNTrustError, match=r"nothing named Eager \(.*plugin_in_sight.py\)$"):
        load_object("plugin_in_sight:Eager", "--method")


class TestSources:
    """What an object was made from: its module, and what that takes from the same folder."""

    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.syspath_prepend(tmp_path)
        files = {
            "plug_a/__init__.py": "", "plug_a/methods/__init__.py": "", "plug_a/unused.py": "",
            "plug_a/methods/mine.py": (
                "import json\nimport numpy as np\nfrom . import near\nfrom ..util import f\nimport plug_b\n"
                "X = 1\n"
            ),
            "plug_a/methods/near.py": "def late():\n    from plug_a import seldom\n",
            "plug_a/util.py": "f = 1\n", "plug_a/seldom.py": "", "plug_b.py": "", "numpy_not.py": "",
        }  # fmt: skip
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    def test_of_a_module_in_a_package(self, package: Path) -> None:
        assert set(sources_of("plug_a.methods.mine:X", "kind")) == {
            "plug_a/__init__.py", "plug_a/methods/__init__.py", "plug_a/methods/mine.py",
            "plug_a/methods/near.py", "plug_a/seldom.py", "plug_a/util.py", "plug_b.py",
        }  # fmt: skip

    def test_of_what_is_installed_the_folder_of_the_module(self) -> None:
        assert list(sources_of("collections.abc:Iterator", "kind")) == ["collections/abc.py"]
        files = sources_of("sklearn.ensemble:ExtraTreesClassifier", "kind")
        assert {"sklearn/ensemble/__init__.py", "sklearn/ensemble/_forest.py"} <= set(files)
        assert {Path(file).parent for file in files} == {Path("sklearn/ensemble")}

    def test_follow_a_module_that_is_loaded_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        file = tmp_path / "plug_again.py"
        file.write_text("class X:\n    size = 1\n")
        before = sources_of("plug_again:X", "kind")
        file.write_text("class X:\n    size = 22\n")
        assert sources_of("plug_again:X", "kind") == before, "that is what was loaded"
        importlib.reload(sys.modules["plug_again"])
        assert sources_of("plug_again:X", "kind") != before

    def test_follow_what_it_imports_too_and_only_what_is_loaded_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        own, helper = tmp_path / "plug_user.py", tmp_path / "plug_helper.py"
        own.write_text("import plug_helper\n\nclass X:\n    pass\n")
        helper.write_text("SIZE = 1\n")
        before = sources_of("plug_user:X", "kind")
        for file in (own, helper):
            file.write_text(file.read_text() + "# changed\n")
        assert sources_of("plug_user:X", "kind") == before
        importlib.reload(sys.modules["plug_helper"])
        after = sources_of("plug_user:X", "kind")
        assert after["plug_helper.py"] != before["plug_helper.py"]
        assert after["plug_user.py"] == before["plug_user.py"], "that is still what runs"

    def test_of_code_without_a_file_nothing_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in a notebook: whatever it is, it is taken for no other."""
        found = []
        for size in (1, 1, 2):
            module = ModuleType("plug_cell")
            exec(f"class X:\n    size = {size}\n", module.__dict__)
            monkeypatch.setitem(sys.modules, "plug_cell", module)
            found.append(sources_of("plug_cell:X", "kind")["plug_cell:X"])
            assert sources_of("plug_cell:X", "kind")["plug_cell:X"] == found[-1], "it is still the same"
        assert len(set(found)) == 3

    def test_of_a_module_that_was_edited_after_its_import_nothing_is_known(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else the old code's result would be kept under the new file's name."""
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        for name in ("plug_early", "plug_on_time"):
            (tmp_path / f"{name}.py").write_text("class X:\n    size = 1\n")
        importlib.import_module("plug_early")
        for name in ("plug_early", "plug_on_time"):
            (tmp_path / f"{name}.py").write_text("class X:\n    size = 22\n")
        truth = file_digest(tmp_path / "plug_early.py")
        assert sources_of("plug_early:X", "kind")["plug_early.py"] != truth
        assert sources_of("plug_on_time:X", "kind") == {"plug_on_time.py": truth}

    def test_of_a_module_that_was_imported_long_after_it_was_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        file = tmp_path / "plug_old.py"
        file.write_text("class X:\n    size = 1\n")
        os.utime(file, (0, 0))
        importlib.import_module("plug_old")
        assert sources_of("plug_old:X", "kind") == {"plug_old.py": file_digest(file)}

    def test_of_a_package_behind_a_link(self, package: Path) -> None:
        (package / "plug_link").symlink_to(package / "plug_a")
        assert "plug_link/methods/near.py" in sources_of("plug_link.methods.mine:X", "kind")


def test_whose_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_at_fault.py").write_text(
        "def f(x):\n    return g(x)\n\n\ndef g(x):\n    return int(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    f = load_object("plugin_at_fault:f", "kind")
    with pytest.raises(ValueError, match="invalid") as users:
        f("one")
    assert str(users_fault(users.value)).startswith("plugin_at_fault.py:6, in g: ValueError: invalid literal")
    with pytest.raises(ValueError, match="invalid") as ours:
        int("one")
    assert users_fault(ours.value) is None


@pytest.mark.parametrize("text", ["def broken(:\n", "1 / 0\n"])
def test_a_module_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    name = f"plugin_that_fails_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LNTrustError, match=rf"cannot import {name}: (SyntaxError|ZeroDivisionError)"):
        load_object(f"{name}:X", "--method")


def test_what_a_name_of_ours_leads_to_is_nobody_elses() -> None:
    load_object("lntrust.study:load_study", "--method")
    with pytest.raises(LNTrustError) as caught:
        load_study("no-such-study")
    assert users_fault(caught.value) is None
