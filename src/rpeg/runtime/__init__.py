"""Running a plan on real processes."""
