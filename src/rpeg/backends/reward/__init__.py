"""Reward backends: built-in verifiers, and users' functions in a process that a time limit can end."""
