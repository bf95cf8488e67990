"""Measuring the machine that this runs on."""
