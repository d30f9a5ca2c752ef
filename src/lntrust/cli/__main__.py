"""`python -m lntrust.cli`."""

import sys
from pathlib import Path

from lntrust.cli.app import main

# `python -m` looks for every library in the working folder first; `lntrust` does not, nor shall this.
if sys.path[0] in ("", str(Path.cwd())) and not sys.flags.safe_path:
    del sys.path[0]
main()
