"""What goes wrong in a user's own code is its author's to mend, who wants to know where."""

from pathlib import Path
from typing import Any

import pytest

HEAD = "from lntrust.methods import Method\n\n\nclass Mine(Method):\n    about = 'mine'\n\n"


@pytest.fixture(params=["run", "sweep"])
def failing(
    request: pytest.FixtureRequest, lntrust: Any, tiny_file: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:  # fmt: skip
    """Runs a method of this source, which must fail; the module's name and the message."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, source: str) -> tuple[str, str]:
        name = f"{name}_{request.param}"
        Path(f"{name}.py").write_text(HEAD + source)
        option = "--method" if request.param == "run" else "--method"
        got = lntrust(request.param, tiny_file, option, f"{name}:Mine", "--device", "cpu", "--out", "out")
        assert got.code == 2
        assert "This is a bug" not in got.err
        assert "internal" not in got.err
        return name, got.err

    return call


def test_an_exception_has_its_file_and_line(failing: Any) -> None:
    source = "    def round(self, site, state, t):\n        1 / (t - 2)\n        return state\n"
    name, message = failing("own_method_divides", source)
    assert f"{name}.py:8, in round: ZeroDivisionError: division by zero" in message


def test_a_name_is_no_emoji(lntrust: Any, tiny_file: Path) -> None:
    got = lntrust("run", tiny_file, "--method", "nowhere:fire:")
    assert "--method = 'nowhere:fire:'" in got.err


def test_an_exception_below_it_too(failing: Any) -> None:
    """What was called came to grief, and the line that called it is the one to look at."""
    lines = [
        "    def start(self, site):",
        "        import torch",
        "        torch.ones(2) @ torch.ones(3)",
        "",
    ]
    name, message = failing("own_method_misshapes", "\n".join(lines))
    assert f"{name}.py:9, in start: RuntimeError: " in message


def test_a_state_that_cannot_be_kept(failing: Any) -> None:
    name, message = failing(
        "own_method_forgets", "    def start(self, site):\n        return {'share': 0.5}\n"
    )
    assert f"method {name}:Mine: start left 'share' in its state, a float; must be a tensor" in message


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("start(self, site)", "a dictionary of tensors"),
        ("round(self, site, state, t)", "a dictionary of tensors"),
        ("deploy(self, site, state)", "a Deployment"),
    ],
)
def test_a_return_that_was_forgotten(failing: Any, verb: str, what: str) -> None:
    called = verb.partition("(")[0]
    name, message = failing(f"own_method_returns_nothing_from_{called}", f"    def {verb}:\n        pass\n")
    assert f"method {name}:Mine: {called} returned a NoneType; must be {what}" in message


def test_a_sweep_goes_on_with_the_others(
    lntrust: Any, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_method_beside.py").write_text(HEAD + "    def round(self, site):\n        pass\n")
    methods = "own_method_beside:Mine,independent"
    got = lntrust("sweep", tiny_file, "--method", methods, "--device", "cpu", "--out", "out")
    assert got.code == 2
    assert "1 of 2 tasks failed:" in got.err
    assert "own_method_beside:Mine, seed 0: failed: method own_method_beside:Mine: round cannot be" in got.err
    assert "independent" in got.out


def test_a_module_that_fails_says_where(failing: Any) -> None:
    name, message = failing("own_method_misspells", "\n\nshare = undefined\n")
    assert f"cannot import {name}: NameError: name 'undefined' is not defined ({name}.py:9)" in message
