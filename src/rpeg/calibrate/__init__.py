"""Measuring the machine that this runs on: `measure` times ops and layers and caches the tables."""

from rpeg.calibrate.machine import memory_bytes
from rpeg.calibrate.measure import cached, measure
from rpeg.calibrate.shapes import Shapes

__all__ = ["Shapes", "cached", "measure", "memory_bytes"]
