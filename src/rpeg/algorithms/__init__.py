"""Objectives: one file each, with its graph and its numeric functions."""
