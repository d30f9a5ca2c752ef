"""Users' own classes by `package.module:Name`."""

from pathlib import Path

import pytest

from lntrust import LNTrustError
from lntrust.plugins import load_object


def test_an_installed_object() -> None:
    assert load_object("collections.abc:Iterator", "--method").__name__ == "Iterator"


def test_a_module_beside_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_beside_me.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(tmp_path)  # undone afterwards, with what load_object adds
    monkeypatch.chdir(tmp_path)
    assert load_object("plugin_beside_me:ANSWER", "kind") == 42


@pytest.mark.parametrize("name", [":Name", "module:", "a/b:Name", ".module:Name", "a..b:Name", "a b:c"])
def test_a_name_of_another_shape(name: str) -> None:
    with pytest.raises(LNTrustError) as refusal:
        load_object(name, "--method")
    assert str(refusal.value) == f"--method = {name!r}: must look like package.module:Name"


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(LNTrustError, match="--method = 'nowhere_at_all:X': cannot import nowhere_at_all"):
        load_object("nowhere_at_all:X", "--method")


def test_a_name_that_is_not_in_it() -> None:
    with pytest.raises(LNTrustError, match="kind = 'math:Tau': math has nothing named Tau"):
        load_object("math:Tau", "kind")


@pytest.mark.parametrize("text", ["def broken(:\n", "1 / 0\n"])
def test_a_module_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    name = f"plugin_that_fails_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LNTrustError, match=rf"cannot import {name}: (SyntaxError|ZeroDivisionError)"):
        load_object(f"{name}:X", "--method")
