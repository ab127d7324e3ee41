"""Lets the tests here share the small builders of ``pieces``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
