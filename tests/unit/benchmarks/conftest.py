"""Makes the benchmarks importable: they are run from the checkout, and are no part of the installed package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
