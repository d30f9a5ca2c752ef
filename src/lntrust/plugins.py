"""Users' own classes and functions, named `package.module:Name`."""

import importlib
import sys
from pathlib import Path
from typing import Any

from lntrust.errors import LNTrustError


def load_object(name: str, field: str) -> Any:
    """The object that `package.module:Name` names. `field` is what to blame in the message."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise LNTrustError(f"{field} = {name!r}: must look like package.module:Name")
    here = str(Path.cwd())
    if here not in sys.path:  # the command line's user expects modules beside the study to be found
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's, and may fail in any way
        raise LNTrustError(
            f"{field} = {name!r}: cannot import {module_name}: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, attribute):
        raise LNTrustError(f"{field} = {name!r}: {module_name} has nothing named {attribute}")
    return getattr(module, attribute)
