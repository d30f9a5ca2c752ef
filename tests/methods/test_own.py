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
def run(lntrust: Any, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`lntrust run` with a method of this body: what the command said, and the method's name."""
    monkeypatch.chdir(tmp_path)

    def call(body: str, *more: str, head: str = HEAD) -> tuple[Any, str]:
        name = f"own_{zlib.crc32(body.encode())}_{len(more)}"
        Path(f"{name}.py").write_text(head + body)
        words = ("--method", f"{name}:Mine", "--device", "cpu", "--out", "out", *more)
        return lntrust("run", tiny_file, *words), f"{name}:Mine"

    return call


@pytest.fixture
def refused(run: Any) -> Any:
    """Why a method with this body is refused: the message after the method's name."""

    def call(body: str, *more: str) -> str:
        got, name = run(body, *more)
        assert got.code == 2, got
        assert got.err.startswith(f"error: method {name}: ")
        return str(got.err.removeprefix(f"error: method {name}: "))

    return call


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("def round(self, site): pass", "round cannot be called as round(site, state, t): too many "),
        ("def finish(self, site, state, t): pass", "finish cannot be called as finish(site, state): missing"),
        ("start = 3", "start cannot be called as start(site): "),
        ("settings_class = dict", "settings_class = <class 'dict'>; must be a subclass of"),
        ("def __init__(self): pass", "__init__ cannot be called with the settings: "),
        ("def __init__(self, settings): pass", "__init__ must hand its settings on"),
        ("wire_format = None", "wire_format is None; must be of type WireFormat"),
        ("final_rounds = '3'", "final_rounds is '3'; must be of type int"),
    ],
)
def test_a_class_of_another_shape_is_refused_before_any_work(refused: Any, body: str, wrong: str) -> None:
    assert refused(f"    {body}\n").startswith(wrong)
    assert not Path("out").exists()


NO_JSON = "returned what JSON cannot hold ("


@pytest.mark.parametrize(
    ("verb", "returned", "wrong"),
    [
        ("report(self, site, state)", "{'x': torch.ones(1)}", f"{NO_JSON}Object of type"),
        ("report(self, site, state)", "{(0, 1): 2.0}", f"{NO_JSON}keys must be"),
        ("report(self, site, state)", "None", "returned a NoneType; must be a dictionary"),
        ("tables(self, site, state)", "None", "returned a NoneType; must be a dictionary of tables"),
        ("tables(self, site, state)", "{'t': {'a': [1, 2], 'b': [1]}}", "returned 't', which is no table ("),
        ("remarks(self, site)", "None", "returned a NoneType; must be a list of strings"),
        ("remarks(self, site)", "'one'", "returned a str; must be a list of strings"),
        ("more_identity(self)", "{'x': torch.ones(1)}", f"{NO_JSON}Object of type Tensor"),
        ("pseudo_labels(self, site, state)", "{}", "returned a dict; must be PseudoLabels or None"),
        ("finish(self, site, state)", "{1: torch.ones(1)}", "left 1 in its state; names must be strings"),
        ("start(self, site)", "{'x': 1.0}", "left 'x' in its state, a float; must be a tensor"),
        ("pack(self, state)", "[]", "returned a list; must be a dictionary of tensors"),
    ],
)
def test_a_return_that_cannot_be_used(refused: Any, verb: str, returned: str, wrong: str) -> None:
    called = verb.partition("(")[0]
    assert refused(f"    def {verb}:\n        return {returned}\n").startswith(f"{called} {wrong}")


def test_a_state_of_its_own_that_it_packs(run: Any) -> None:
    """Then it may be anything between the rounds."""
    body = """
    def start(self, site):
        return 1

    def round(self, site, state, t):
        site.learn(t)
        return state + 1

    def pack(self, state):
        return {"count": torch.tensor(state)}

    def unpack(self, tensors):
        return int(tensors["count"])

    def report(self, site, state):
        return {"count": state}
"""
    got, _ = run(body, "--json")
    assert (got.code, got.err) == (0, "")
    assert '"count": 4' in got.out


DEPLOYMENT = """
    def deploy(self, site, state):
        edges = site.network.edges
        fine = dict(members=edges, weights=torch.ones(len(edges)))
        return Deployment(**(fine | dict(FIELDS)))
"""
PSEUDO_LABELS = """
    def pseudo_labels(self, site, state):
        each = Ragged.of([np.array([0])] * 5)
        fine = dict(examples=each, targets=torch.ones(5, 10), weight=torch.ones(5))
        return PseudoLabels(**(fine | dict(FIELDS)))
"""


@pytest.mark.parametrize(
    ("body", "fields", "wrong"),
    [
        (DEPLOYMENT, "weights=torch.ones(len(edges) - 1)", "whose weights is float32["),
        (DEPLOYMENT, "weights=torch.ones(len(edges), 9).double()", "whose weights is float64["),
        (DEPLOYMENT, "members=edges.tolist()", "whose members is a list; must be int64["),
        (DEPLOYMENT, "prior=torch.ones(3)", "whose prior is float32[3]; must be a tensor of shape [5, 10]"),
        (DEPLOYMENT, "held=torch.ones(len(edges))", "whose held is float32["),
        (DEPLOYMENT, "certainty='much'", "whose certainty is a str; must be a tensor of shape [5]"),
        (DEPLOYMENT, "answer=3", "whose answer is 3; must be a function"),
        (DEPLOYMENT, "combine=3", "whose combine is 3; must be a function"),
        (DEPLOYMENT, "combine=print, certainty=0.5", "with certainty and combine; who combines answers"),
        (DEPLOYMENT, "weights=-torch.ones(len(edges))", "with the weight -1; none may be negative"),
        (DEPLOYMENT, "weights=0 * torch.ones(len(edges), 10)", "whose weights for node 0 are all 0; "),
        (DEPLOYMENT, "variants=[1]", "whose variants are a list; must be by name"),
        (PSEUDO_LABELS, "targets=torch.ones(5, 3)", "whose targets is float32[5, 3]; must be a tensor of sh"),
        (PSEUDO_LABELS, "weight=torch.ones(4)", "whose weight is float32[4]; must be a tensor of shape [5]"),
        (PSEUDO_LABELS, "examples=Ragged.of([np.arange(5)])", "whose examples are no list for each of 5 n"),
        (PSEUDO_LABELS, "examples=Ragged.of([np.array([10**6])] * 5)", "of examples that there are not; ids"),
    ],
)
def test_what_does_not_fit(refused: Any, body: str, fields: str, wrong: str) -> None:
    what = "deploy returned a Deployment" if body is DEPLOYMENT else "pseudo_labels returned PseudoLabels"
    assert refused(body.replace("FIELDS", fields)).startswith(f"{what} {wrong}")


def test_under_another_deployment_too(refused: Any) -> None:
    said = refused("    def finish(self, site, state):\n        pass\n", "--set", "deploy=trust")
    assert said.startswith("finish returned a NoneType; must be a dictionary of tensors")


def test_an_exception_that_shows_no_line_of_its_authors(refused: Any) -> None:
    body = "    from operator import truediv\n    check = __import__('functools').partial(truediv, 1)\n"
    assert refused(body).startswith("check: TypeError: unsupported operand")


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        (", answer=lambda examples: torch.ones(2, 3)", "a Deployment's answer returned [2, 3]; must be "),
        (", combine=lambda *_: torch.ones(1, 10)", "a Deployment's combine returned [1, 10]; must be prob"),
        (", variants={'x': 1}", "deploy returned a int; must be a Deployment"),
        # Also where a number from behind would mean somebody who is known.
        (", variants={'x': Deployment(torch.tensor([[1, -5]]), torch.ones(1))}", "s node -5 at node 1, "),
    ],
)
def test_an_answer_of_another_shape_or_of_nobody(run: Any, more: str, wrong: str) -> None:
    body = f"""
    def deploy(self, site, state):
        edges = site.network.edges
        return Deployment(edges, torch.ones(len(edges)){more})
"""
    got, _ = run(body)
    assert got.code == 2
    assert wrong in got.err


def test_what_an_heir_has_from_us_is_still_ours(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def deploy(*_: object) -> None:
        raise ZeroDivisionError("ours")

    deploy.__module__ = "lntrust.methods.uniform"
    monkeypatch.setattr("lntrust.methods.uniform.Uniform.deploy", deploy)
    head = "from lntrust.methods.uniform import Uniform\n\n\nclass Mine(Uniform):\n"
    got, _ = run("    pass\n", head=head)
    assert got.code == 1
    assert "internal error: ZeroDivisionError: ours" in got.err


def test_learned_trust_with_a_round_of_its_own(run: Any) -> None:
    """Its state is LNTrust's, which packs it; and a report may have any name for what it likes."""
    head = "from lntrust.methods.lntrust import LNTrust\n\n\nclass Mine(LNTrust):\n    about = 'mine'\n\n"
    body = "    def round(self, site, state, t):\n        return super().round(site, state, t)\n\n"
    body += "    def report(self, site, state):\n        return {'trust': 0.5}\n"
    got, _ = run(body, head=head)
    assert (got.code, got.err) == (0, "")
