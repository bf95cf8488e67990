"""Data backends."""
