"""Methods of the user's own that are none: the message names the class, the verb and what is wrong."""

import zlib
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import numpy as np
import torch

from lntrust.learners.population import PseudoLabels
from lntrust.methods import Deployment, Method
from lntrust.world.ragged import Ragged


class Mine(Method):
    about = "mine"

"""


@pytest.fixture
def told(lntrust: Any, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the command says to a method with this body, which must be an error: after the method's name."""
    monkeypatch.chdir(tmp_path)

    def call(body: str, *more: str) -> str:
        name = f"own_{zlib.crc32(body.encode())}_{len(more)}"
        Path(f"{name}.py").write_text(HEAD + body)
        words = ["--method", f"{name}:Mine", "--device", "cpu", "--out", "out", *more]
        got = lntrust("run", tiny_file, *words)
        assert got.code == 2, got
        assert got.err.startswith(f"error: method {name}:Mine: ")
        return str(got.err.removeprefix(f"error: method {name}:Mine: "))

    return call


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [
        ("round(self, site)", "round cannot be called as round(site, state, t): too many positional"),
        (
            "finish(self, site, state, t)",
            "finish cannot be called as finish(site, state): missing a required",
        ),
        ("report(self)", "report cannot be called as report(site, state): too many positional"),
        ("remarks(self)", "remarks cannot be called as remarks(site): too many positional"),
    ],
)
def test_a_verb_of_another_signature_is_refused_before_any_work(told: Any, verb: str, wrong: str) -> None:
    assert told(f"    def {verb}:\n        return {{}}\n").startswith(wrong)
    assert not Path("out").exists()


def test_a_verb_that_is_none(told: Any) -> None:
    assert told("    start = 3\n").startswith("start cannot be called as start(site): ")


@pytest.mark.parametrize(
    ("verb", "returned", "wrong"),
    [
        (
            "report(self, site, state)",
            "{'x': torch.ones(1)}",
            "returned what JSON cannot hold (Object of type",
        ),
        (
            "report(self, site, state)",
            "{'x': np.float32(1)}",
            "returned what JSON cannot hold (Object of type",
        ),
        ("report(self, site, state)", "{(0, 1): 2.0}", "returned what JSON cannot hold (keys must be"),
        ("report(self, site, state)", "None", "returned a NoneType; must be a dictionary"),
        ("tables(self, site, state)", "None", "returned a NoneType; must be a dictionary of tables"),
        ("tables(self, site, state)", "{'t': {'a': [1, 2], 'b': [1]}}", "returned 't', which is no table ("),
        ("tables(self, site, state)", "{'t': None}", "returned 't', which is no table ("),
        ("remarks(self, site)", "None", "returned a NoneType; must be a list of strings"),
        ("remarks(self, site)", "'one'", "returned a str; must be a list of strings"),
        (
            "more_identity(self)",
            "{'x': torch.ones(1)}",
            "returned what JSON cannot hold (Object of type Tensor",
        ),
        ("pseudo_labels(self, site, state)", "{}", "returned a dict; must be PseudoLabels or None"),
        ("finish(self, site, state)", "{1: torch.ones(1)}", "left 1 in its state; names must be strings"),
    ],
)
def test_a_return_that_cannot_be_used(told: Any, verb: str, returned: str, wrong: str) -> None:
    called = verb.partition("(")[0]
    assert told(f"    def {verb}:\n        return {returned}\n").startswith(f"{called} {wrong}")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ("weights=torch.ones(len(edges) - 1)", "returned a Deployment whose weights is float32["),
        ("weights=torch.ones(len(edges)).double()", "returned a Deployment whose weights is float64["),
        ("weights=torch.ones(len(edges), 9)", "returned a Deployment whose weights is float32["),
        ("members=edges.float()", "returned a Deployment whose members is float32["),
        ("members=edges.tolist()", "returned a Deployment whose members is a list; must be int64["),
        (
            "prior=torch.ones(3)",
            "returned a Deployment whose prior is float32[3]; must be a tensor of shape [5, 10]",
        ),
        ("held=torch.ones(len(edges))", "returned a Deployment whose held is float32["),
        ("certainty='much'", "returned a Deployment whose certainty is a str; must be a tensor of shape [5]"),
        ("answer=3", "returned a Deployment whose answer is 3; must be a function"),
        ("weights=-torch.ones(len(edges))", "returned a Deployment with the weight -1; none may be negative"),
        ("weights=0 * torch.ones(len(edges))", "returned a Deployment whose weights for node 0 are all 0; "),
        (
            "weights=0 * torch.ones(len(edges), 10)",
            "returned a Deployment whose weights for node 0 are all 0; without rows it answers alone",
        ),
        ("variants=[1]", "returned a Deployment whose variants are a list; must be by name"),
        ("variants={'other': None}", "returned a NoneType; must be a Deployment"),
    ],
)
def test_a_deployment_that_does_not_fit(told: Any, fields: str, wrong: str) -> None:
    body = f"""
    def deploy(self, site, state):
        edges = site.network.edges
        fine = dict(members=edges, weights=torch.ones(len(edges)))
        return Deployment(**(fine | dict({fields})))
"""
    assert told(body).startswith(f"deploy {wrong}")


def test_members_that_nobody_is(told: Any) -> None:
    """Also where a number from behind would mean somebody who is known."""
    body = """
    def deploy(self, site, state):
        return Deployment(torch.tensor([[1, -5]]), torch.ones(1))
"""
    assert told(body).startswith("deploys node -5 at node 1, which does not know it")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ("targets=torch.ones(5, 3)", "whose targets is float32[5, 3]; must be a tensor of shape [5, 10]"),
        ("weight=torch.ones(4)", "whose weight is float32[4]; must be a tensor of shape [5]"),
        ("examples=Ragged.of([np.arange(5)])", "whose examples are no list for each of 5 nodes"),
        ("examples=Ragged.of([np.array([10**6])] * 5)", "of examples that there are not; ids must be"),
    ],
)
def test_pseudo_labels_that_do_not_fit(told: Any, fields: str, wrong: str) -> None:
    body = f"""
    def pseudo_labels(self, site, state):
        each = Ragged.of([np.array([0])] * 5)
        fine = dict(examples=each, targets=torch.ones(5, 10), weight=torch.ones(5))
        return PseudoLabels(**(fine | dict({fields})))
"""
    assert told(body).startswith(f"pseudo_labels returned PseudoLabels {wrong}")


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("    settings_class = dict\n", "settings_class = <class 'dict'>; must be a subclass of"),
        ("    def __init__(self):\n        pass\n", "__init__ cannot be called with the settings: "),
        ("    def __init__(self, settings):\n        pass\n", "__init__ must hand its settings on"),
        ("    wire_format = None\n", "wire_format is None; must be of type WireFormat"),
        ("    final_rounds = '3'\n", "final_rounds is '3'; must be of type int"),
    ],
)
def test_a_class_of_another_shape(told: Any, body: str, wrong: str) -> None:
    assert told(body).startswith(wrong)


def test_under_another_deployment_too(told: Any) -> None:
    body = "    def finish(self, site, state):\n        pass\n"
    said = told(body, "--set", "deploy=trust")
    assert said.startswith("finish returned a NoneType; must be a dictionary of tensors")


def test_an_exception_that_shows_no_line_of_its_authors(told: Any) -> None:
    said = told(
        "    from operator import truediv as check\n    check = __import__('functools').partial(check, 1)\n"
    )
    assert said.startswith("check: TypeError: unsupported operand")


def test_an_answer_of_another_shape(lntrust: Any, tiny_file: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    body = """
    def deploy(self, site, state):
        edges = site.network.edges
        return Deployment(edges, torch.ones(len(edges)), answer=lambda examples: torch.ones(2, 3))
"""
    Path("own_answer.py").write_text(HEAD + body)
    got = lntrust("run", tiny_file, "--method", "own_answer:Mine", "--device", "cpu", "--out", "out")
    assert got.code == 2
    assert "error: a Deployment's answer returned [2, 3]; must be probabilities [5, " in got.err


def test_what_an_heir_has_from_us_is_still_ours(
    lntrust: Any, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_heir.py").write_text(
        "from lntrust.methods.uniform import Uniform\n\n\nclass Mine(Uniform):\n    pass\n"
    )

    def deploy(*_: object) -> None:
        raise ZeroDivisionError("ours")

    deploy.__module__ = "lntrust.methods.uniform"
    monkeypatch.setattr("lntrust.methods.uniform.Uniform.deploy", deploy)
    got = lntrust("run", tiny_file, "--method", "own_heir:Mine", "--device", "cpu", "--out", "out")
    assert got.code == 1
    assert "internal error: ZeroDivisionError: ours" in got.err


def test_a_report_with_a_name_of_ours(
    lntrust: Any, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LNTrust's report has a trust of another kind, which is shown as a table."""
    monkeypatch.chdir(tmp_path)
    Path("own_trust.py").write_text(
        HEAD + "    def report(self, site, state):\n        return {'trust': 0.5}\n"
    )
    got = lntrust("run", tiny_file, "--method", "own_trust:Mine", "--device", "cpu", "--out", "out")
    assert (got.code, got.err) == (0, "")
