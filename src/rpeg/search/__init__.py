"""Finding a plan."""
