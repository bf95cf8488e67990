"""What a node of a Ray cluster is like, seen from there: asked before any worker starts."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rpeg.errors import InputError

SAME = ("rpeg", "torch", "transformers", "ray")
"""Packages of which all processes of a run must have one version."""


def look(directory: str) -> dict[str, str]:
    """Versions of what a worker needs, and whether `directory` is there: "yes" or "no"."""
    found = {"python": platform.python_version(), **{name: _version(name) for name in SAME}}
    return {**found, "directory": "yes" if (Path(directory) / "header.json").exists() else "no"}


def check_alike(seen: Mapping[str, Mapping[str, str]], directory: str) -> None:
    """InputError names the node that does not see the run's directory, or has other versions than here.

    seen: what `look` found, by the address of the node.
    """
    here = look(directory)
    for address, there in seen.items():
        if there["directory"] != "yes":
            raise InputError(
                f"node {address} does not see {directory}: workers write their part of the trace and checkpoints there. "
                "Set output to a directory on a filesystem that all nodes share"
            )
        for name, wanted in here.items():
            if there[name] != wanted:
                raise InputError(
                    f"node {address} has {name} {there[name]} and this one {wanted}; install the same on all nodes"
                )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
