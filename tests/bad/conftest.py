"""The malformed queries in Python are read by a test, not collected as tests."""

collect_ignore = ["queries"]
