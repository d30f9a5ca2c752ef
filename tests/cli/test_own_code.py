"""What goes wrong in a user's own code is its author's to mend, who wants to know where."""

from pathlib import Path
from typing import Any

import pytest

OWN = """
import torch
from lntrust.methods import Method

class Mine(Method):
    about = "mine"

    def {signature}:
        {body}
"""


@pytest.mark.parametrize(
    ("signature", "body", "message"),
    [
        ("round(self, site, state, t)", "1 / (t - 1)", "NAME.py:9, in round: ZeroDivisionError: division by"),
        # What was called came to grief, and the line that called it is the one to look at.
        ("start(self, site)", "torch.ones(2) @ torch.ones(3)", "NAME.py:9, in start: RuntimeError: "),
        ("start(self, site=undefined)", "pass", "cannot import NAME: NameError: name 'undefined' is not"),
        ("start(self, site)", "pass", "NAME:Mine: start returned a NoneType; must be a dictionary of tens"),
        ("round(self, site, state, t)", "pass", "round returned a NoneType; must be a dictionary of tensors"),
        ("deploy(self, site, state)", "pass", "deploy returned a NoneType; must be a Deployment"),
    ],
)
def test_it_is_said_where(
    lntrust: Any, quick_file: Path, here: Path, signature: str, body: str, message: str
) -> None:
    module = f"own_{here.name}"
    Path(f"{module}.py").write_text(OWN.format(signature=signature, body=body))
    got = lntrust("run", quick_file, "--method", f"{module}:Mine", "--device", "cpu")
    assert got.code == 2
    assert message.replace("NAME", module) in got.err
    assert "This is a bug" not in got.err
    assert "internal" not in got.err


def test_a_sweep_goes_on_with_the_others(lntrust: Any, quick_file: Path, here: Path) -> None:
    for name, body in {"divides": "1 / (t - 1)", "forgets": "return {'share': 0.5}"}.items():
        text = OWN.format(signature="round(self, site, state, t)", body=body)
        Path(f"own_method_{name}_beside.py").write_text(text)
    methods = "own_method_divides_beside:Mine,own_method_forgets_beside:Mine,independent"
    got = lntrust("sweep", quick_file, "--method", methods, "--device", "cpu")
    assert got.code == 2
    assert "2 of 3 tasks failed:" in got.err
    assert "failed: own_method_divides_beside.py:9, in round: ZeroDivisionError: division by zero" in got.err
    assert "failed: method own_method_forgets_beside:Mine: round left 'share' in its state" in got.err
    assert "independent" in got.out
