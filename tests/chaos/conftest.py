"""Lets the tests here import the queries and the schedules beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
