"""Methods by name: each module of this package that defines a Method is one."""

import importlib
import pkgutil
from inspect import isclass
from typing import Any

from pydantic import ValidationError

from lntrust.core.errors import LNTrustError
from lntrust.core.plugins import load_object
from lntrust.core.text import did_you_mean
from lntrust.methods.base import Method
from lntrust.methods.deploy_with import DeployWith
from lntrust.methods.lntrust import presets
from lntrust.methods.lntrust.settings import renamed
from lntrust.methods.own import construct, guard
from lntrust.study.loading import explain
from lntrust.study.settings import Settings, Study

# Who decides under each `deploy` of a study.
_ANSWERERS = {
    "self": "independent", "uniform": "uniform", "trust": "lntrust", "fedpae": "fedpae",
    "stacking": "stacking", "fens": "fens", "knn": "knn_per",
}  # fmt: skip


def list_methods() -> dict[str, type[Method[Any]]]:
    """The methods that ship with lntrust, by name: the name of the file that defines one."""
    found: dict[str, type[Method[Any]]] = {}
    for info in pkgutil.iter_modules(importlib.import_module("lntrust.methods").__path__):
        module = importlib.import_module(f"lntrust.methods.{info.name}")
        of_it = [c for c in vars(module).values() if isclass(c) and c.__module__.startswith(module.__name__)]
        found.update((info.name, c) for c in of_it if issubclass(c, Method) and c.about)
    return dict(sorted(found.items()))


def find_method(name: str, study: Study) -> Method[Any]:
    """The method of this name with its settings from [methods.NAME], deployed as the study says."""
    known = list_methods()
    for other in study.methods:
        if presets.method_of(other)[0] not in known and ":" not in other:
            raise LNTrustError(f"methods.{other}: settings of an unknown method; {_suggest(other, known)}")
    method = _with_settings(_class_of(presets.method_of(name)[0], known), name, study)
    if ":" in name:
        method = guard(method, name)
    if study.deploy is None:
        return method
    if isinstance(method, known["centralized"]):
        why = "has one model for all nodes, and so no other way to be deployed; leave deploy out for it"
        raise LNTrustError(f"deploy = {study.deploy!r}: method centralized {why}")
    answerer = _ANSWERERS[study.deploy]
    if isinstance(method, known[answerer]) and answerer != "independent":
        return method  # it does that already, on what it has learned while training
    return DeployWith(method, _with_settings(known[answerer], answerer, study))


def _class_of(name: str, known: dict[str, type[Method[Any]]]) -> type[Method[Any]]:
    if ":" in name:
        method = load_object(name, "--method")
        if not (isclass(method) and issubclass(method, Method)):
            raise LNTrustError(f"--method {name}: must be a subclass of lntrust.methods.Method")
        if not (isclass(method.settings_class) and issubclass(method.settings_class, Settings)):
            raise LNTrustError(
                f"method {name}: settings_class = {method.settings_class!r}; must be a subclass of "
                "lntrust.study.MethodSettings"
            )
        return method
    if name not in known:
        raise LNTrustError(f"--method {name}: {_suggest(name, known)}")
    return known[name]


def _with_settings(method: type[Method[Any]], name: str, study: Study) -> Method[Any]:
    table, (of, preset) = study.methods.get(name, {}), presets.method_of(name)
    if preset is not None:  # the study's for it, over the preset's, over the study's for the method
        table = {**renamed(study.methods.get(of, {})), **preset.settings, **renamed(table)}
    try:
        settings = method.settings_class.model_validate(table)
    except ValidationError as error:
        raise LNTrustError(explain(error, f"methods.{name}", method.settings_class)) from None
    return construct(method, settings, name)


def _suggest(name: str, known: dict[str, type[Method[Any]]]) -> str:
    names = [*known, *presets.names()]
    hint = did_you_mean(name, names)
    return f"{hint}Must be one of {', '.join(names)}, or your own as package.module:Name"
