"""Where RPEG keeps what it can make again: calibrations and converted models."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """``$RPEG_CACHE``, else ``$XDG_CACHE_HOME/rpeg``, else ``~/.cache/rpeg``."""
    if own := os.environ.get("RPEG_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "rpeg"
