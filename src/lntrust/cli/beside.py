"""What lies beside the package in its sources, and not in the wheel: benchmarks and examples."""

import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import lntrust
from lntrust.cli.console import err
from lntrust.core.errors import LNTrustError

FORWARD = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def run_beside(module: str, arguments: Sequence[str]) -> None:
    """`python -m MODULE ARGUMENTS`, where the package is installed from a checkout; else say where it is."""
    command = f"python -m {shlex.join([module, *arguments])}"
    root = Path(lntrust.__file__).parents[2]
    if not root.joinpath(*module.split("."), "__main__.py").is_file():
        raise LNTrustError(f"this is in lntrust's sources, not in the package; in a checkout: {command}")
    err.print(f"hint: in {root} this is {command}", highlight=False, markup=False, soft_wrap=True)
    sys.path.insert(0, str(root))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
