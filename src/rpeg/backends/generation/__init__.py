"""Generation backends."""
