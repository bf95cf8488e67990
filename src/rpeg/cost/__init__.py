"""Time, communication and memory of a stage, as trees that print."""
