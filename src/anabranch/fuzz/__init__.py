"""Fuzzing: draw a case, run it in the simulator, judge it against the ideal run, shrink what fails."""
