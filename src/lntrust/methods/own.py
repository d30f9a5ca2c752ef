"""Methods of the user's own: what fails in them, or is returned by them, is told as theirs.

The verbs that their author has written are called through one thin wrapper. An exception that shows no line
of the author's (one that shows it speaks for itself) and a return that nobody can use become an error which
names the class, the verb and what was wrong.
"""

import inspect
import json
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import users_fault
from lntrust.learners.population import PseudoLabels
from lntrust.methods.base import Deployment, Method, Site
from lntrust.network import WireFormat
from lntrust.study.settings import Settings
from lntrust.world.ragged import Ragged

Wrong = str | None  # what is wrong with something, after the verb's name; none: nothing


def made(method: type[Method], settings: Settings, name: str) -> Method:
    """A method with its settings, however its author has it begin."""
    try:
        found = method(settings)
    except TypeError as error:
        if users_fault(error):
            raise
        raise LNTrustError(f"method {name}: __init__ cannot be called with the settings: {error}") from None
    if getattr(found, "settings", None) is not settings:
        raise LNTrustError(f"method {name}: __init__ must hand its settings on: super().__init__(settings)")
    return found


def owned(method: Method, name: str) -> Method:
    """The same method, with its author's verbs wrapped."""
    for verb, check in _CHECKS.items():
        if _of_its_author(method, verb):
            setattr(method, verb, _wrapped(method, name, verb, check))
    return method


def check_verbs(method: Method, name: str) -> None:
    """Refuse, before hours of work, verbs of the user's that cannot be called as they will be."""
    inner = getattr(method, "inner", method)  # whose deployment another's takes the place of
    for verb in _CHECKS:
        if not _of_its_author(inner, verb):
            continue
        usual = inspect.signature(getattr(Method, verb)).parameters.values()
        given = [each.name for each in usual if each.default is each.empty][1:]  # without self
        try:
            inspect.signature(getattr(inner, verb)).bind(*given)
        except (TypeError, ValueError) as error:
            called = f"{verb}({', '.join(given)})"
            raise LNTrustError(f"method {name}: {verb} cannot be called as {called}: {error}") from None
    for field, kind in (("wire_format", WireFormat), ("final_rounds", int)):
        found = getattr(inner, field)
        if not isinstance(found, kind):
            raise LNTrustError(f"method {name}: {field} is {found!r}; must be of type {kind.__name__}")


def _of_its_author(method: Method, verb: str) -> bool:
    return str(getattr(getattr(type(method), verb), "__module__", "")).partition(".")[0] != "lntrust"


def _wrapped(
    method: Method, name: str, verb: str, check: Callable[[Any, Site | None], Wrong]
) -> Callable[..., Any]:
    its = getattr(method, verb)

    @wraps(its)
    def call(*given: Any, **named: Any) -> Any:
        try:
            made = its(*given, **named)
        except LNTrustError:
            raise
        except Exception as error:
            if users_fault(error):
                raise
            raise LNTrustError(f"method {name}: {verb}: {type(error).__name__}: {error}") from error
        wrong = check(made, given[0] if given else named.get("site"))
        if wrong:
            raise LNTrustError(f"method {name}: {verb} {wrong}")
        return made

    return call


# -- what verbs may return ------------------------------------------------------------------------


def _anything(_made: Any, _site: Site | None) -> Wrong:
    return None


def _returned(made: Any, must_be: str) -> str:
    return f"returned a {type(made).__name__}; must be {must_be}"


def _state(made: Any, _site: Site | None) -> Wrong:
    if not isinstance(made, dict):
        return _returned(made, "a dictionary of tensors")
    for name, value in made.items():
        if not isinstance(name, str):
            return f"left {name!r} in its state; names must be strings"
        if not isinstance(value, Tensor):
            return f"left {name!r} in its state, a {type(value).__name__}; must be a tensor"
    return None


def _json(made: Any, _site: Site | None) -> Wrong:
    if not isinstance(made, dict):
        return _returned(made, "a dictionary")
    try:
        json.dumps(made)
    except (TypeError, ValueError, RecursionError) as error:
        return f"returned what JSON cannot hold ({error}); float(…) and .tolist() make numbers and lists"
    return None


def _tables(made: Any, _site: Site | None) -> Wrong:
    import pyarrow as pa

    if not isinstance(made, dict):
        return _returned(made, "a dictionary of tables")
    for name, columns in made.items():
        try:
            pa.table(columns)
        except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            return f"returned {name!r}, which is no table ({error}); must be columns of one length, by name"
    return None


def _remarks(made: Any, _site: Site | None) -> Wrong:
    fine = isinstance(made, list) and all(isinstance(each, str) for each in made)
    return None if fine else _returned(made, "a list of strings")


def _pseudo_labels(made: Any, site: Site | None) -> Wrong:
    assert site is not None
    if made is None:
        return None
    if not isinstance(made, PseudoLabels):
        return _returned(made, "PseudoLabels or None")
    if not isinstance(made.examples, Ragged) or len(made.examples) != site.population.n:
        return f"returned PseudoLabels whose examples are no list for each of {site.population.n} nodes"
    ids, known = made.examples.values, len(site.population.labels) // len(site.population.seeds)
    if ids.dtype.kind not in "iu" or (len(ids) and not 0 <= ids.min() <= ids.max() < known):
        return f"returned PseudoLabels of examples that there are not; ids must be integers in 0…{known - 1}"
    of = partial(_shaped, "PseudoLabels")
    wrong = of("targets", made.targets, (len(ids), site.population.classes))
    return wrong or of("weight", made.weight, (len(ids),))


def _deployment(made: Any, site: Site | None) -> Wrong:
    assert site is not None
    wrong = _way(made, site)
    if wrong or not made.variants:
        return wrong
    if not isinstance(made.variants, dict):
        return f"returned a Deployment whose variants are a {type(made.variants).__name__}; must be by name"
    return next(filter(None, (_way(way, site) for way in made.variants.values())), None)


def _way(way: Any, site: Site) -> Wrong:
    """One way to deploy."""
    if not isinstance(way, Deployment):
        return _returned(way, "a Deployment")
    n, classes, dtype = site.population.n, site.population.classes, site.population.dtype
    fields: Any = way  # of any type: nobody has checked them yet
    rows = len(fields.members) if isinstance(fields.members, Tensor) and fields.members.ndim else 0
    per_class = isinstance(fields.weights, Tensor) and fields.weights.ndim == 2
    of = partial(_shaped, "a Deployment", device=site.population.device)
    wrong = of("members", fields.members, (rows, 2), torch.int64)
    wrong = wrong or of("weights", fields.weights, (rows, classes) if per_class else (rows,), dtype)
    if fields.prior is not None:
        wrong = wrong or of("prior", fields.prior, (n, classes))
    if fields.held is not None:
        wrong = wrong or of("held", fields.held, (rows,), torch.bool)
    if fields.certainty is not None and not isinstance(fields.certainty, float | int):
        wrong = wrong or of("certainty", fields.certainty, (n,))
    if fields.answer is not None and not callable(fields.answer):
        wrong = wrong or f"returned a Deployment whose answer is {fields.answer!r}; must be a function"
    return wrong or _weighed(way, n)


def _weighed(way: Deployment, n: int) -> Wrong:
    """Weights that say something. Those that are not finite are no mistake of form: the run has diverged."""
    each = way.weights.sum(1) if way.weights.ndim == 2 else way.weights
    if (way.weights < 0).any():
        return f"returned a Deployment with the weight {way.weights.min():.3g}; none may be negative"
    askers = way.members[:, 0].clamp(0, n - 1)  # the driver refuses others
    total = each.new_zeros(n).index_add_(0, askers, each)
    empty = torch.isin(torch.arange(n, device=total.device), askers) & (total == 0)
    if empty.any():
        node = int(empty.nonzero()[0])
        return f"returned a Deployment whose weights for node {node} are all 0; without rows it answers alone"
    return None


def _shaped(
    what: str, field: str, got: Any, shape: tuple[int, ...], dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Wrong:  # fmt: skip
    """That a tensor has this shape, and this dtype and device where they matter."""
    if not isinstance(got, Tensor):
        found = f"a {type(got).__name__}"
    elif got.shape != shape or dtype not in (None, got.dtype):
        found = f"{_named(got.dtype)}{list(got.shape)}"
    elif device is not None and got.device.type != device.type:
        return f"returned {what} whose {field} lies on {got.device}; must be on {device}"
    else:
        return None
    wanted = f"{_named(dtype) if dtype else 'a tensor of shape '}{list(shape)}"
    return f"returned {what} whose {field} is {found}; must be {wanted}"


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_CHECKS: dict[str, Callable[[Any, Site | None], Wrong]] = {
    "more_identity": _json, "remarks": _remarks, "check": _anything, "start": _state, "round": _state,
    "pseudo_labels": _pseudo_labels, "finish": _state, "deploy": _deployment, "report": _json,
    "tables": _tables,
}  # fmt: skip
