"""The simulator: a virtual clock that drives the scheduler with costs."""
