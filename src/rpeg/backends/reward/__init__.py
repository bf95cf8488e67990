"""Reward backends."""
