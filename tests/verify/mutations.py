"""All mutations: lies about sound runs, each of which breaks the property that it names by construction (see `lies`)."""

from __future__ import annotations

from verify import (
    lies_of_order,
    lies_of_parts,
    lies_of_runs,
    lies_of_samples,
    lies_of_the_log,
    lies_of_versions,
)
from verify.lies import REGISTERED, Mutation, Run

FILES = (
    lies_of_the_log,
    lies_of_order,
    lies_of_versions,
    lies_of_parts,
    lies_of_samples,
    lies_of_runs,
)
MUTATIONS: tuple[Mutation, ...] = tuple(REGISTERED)
"""Those of all files, which register themselves when they are imported."""

__all__ = ["MUTATIONS", "Mutation", "Run"]
