"""Lets the tests here import the oracle and the user code beside them, and lets operators name the latter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
