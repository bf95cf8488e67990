"""Devices, nodes, racks and the links between them, as data with sources."""
