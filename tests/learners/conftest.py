"""Makes `toy` and `own_models` importable, as a user's modules beside a study are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
