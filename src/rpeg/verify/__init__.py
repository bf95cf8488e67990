"""Proofs from a trace, each with a counterexample where it fails."""
