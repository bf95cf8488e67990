"""A plan: which devices run what, how, and in what order."""
