"""What the tests of live nodes share."""

import sys
from pathlib import Path

here = Path(__file__).parent
sys.path[:0] = [str(here), *(str(here / room) for room in ("peers", "training", "http", "operations"))]
