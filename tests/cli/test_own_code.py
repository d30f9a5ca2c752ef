"""What goes wrong in a user's own code is its author's to mend, who wants to know where."""

from pathlib import Path
from typing import Any

import pytest

HEAD = "from lntrust.methods import Method\n\n\nclass Mine(Method):\n    about = 'mine'\n\n"


@pytest.mark.parametrize("command", ["run", "sweep"])
@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        (
            "divides",
            "    def round(self, site, state, t):\n        1 / (t - 2)\n        return state\n",
            "NAME.py:8, in round: ZeroDivisionError: division by zero",
        ),
        (  # what was called came to grief, and the line that called it is the one to look at
            "misshapes",
            "    def start(self, site):\n        import torch\n        torch.ones(2) @ torch.ones(3)\n",
            "NAME.py:9, in start: RuntimeError: ",
        ),
        (
            "forgets",
            "    def start(self, site):\n        return {'share': 0.5}\n",
            "method NAME:Mine: start left 'share' in its state, a float; must be a tensor",
        ),
        (
            "misspells",
            "\n\nshare = undefined\n",
            "cannot import NAME: NameError: name 'undefined' is not defined (NAME.py:9)",
        ),
        *(
            (
                f"returns_nothing_from_{verb}",
                f"    def {verb}({arguments}):\n        pass\n",
                f"method NAME:Mine: {verb} returned a NoneType; must be {what}",
            )
            for verb, arguments, what in (
                ("start", "self, site", "a dictionary of tensors"),
                ("round", "self, site, state, t", "a dictionary of tensors"),
                ("deploy", "self, site, state", "a Deployment"),
            )
        ),
    ],
)
def test_it_is_said_where(
    lntrust: Any, quick_file: Path, here: Path, command: str, name: str, source: str, message: str
) -> None:
    module = f"own_method_{name}_{command}"
    Path(f"{module}.py").write_text(HEAD + source)
    got = lntrust(command, quick_file, "--method", f"{module}:Mine", "--device", "cpu")
    assert got.code == 2
    assert message.replace("NAME", module) in got.err
    assert "This is a bug" not in got.err
    assert "internal" not in got.err


def test_a_sweep_goes_on_with_the_others(lntrust: Any, quick_file: Path, here: Path) -> None:
    Path("own_method_beside.py").write_text(HEAD + "    def round(self, site):\n        pass\n")
    got = lntrust("sweep", quick_file, "--method", "own_method_beside:Mine,independent", "--device", "cpu")
    assert got.code == 2
    assert "1 of 2 tasks failed:" in got.err
    assert "own_method_beside:Mine, seed 0: failed: method own_method_beside:Mine: round cannot be" in got.err
    assert "independent" in got.out
