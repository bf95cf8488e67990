"""What this machine is, for the provenance of a calibration and the key of its cache."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("torch", "transformers", "ray")


def processor() -> str:
    """The processor as it calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> tuple[int, ...]:
    """The cores that this process may use, in order."""
    return tuple(sorted(os.sched_getaffinity(0)))


def memory_bytes() -> int:
    """Memory of the machine, or of the control group that this process lives in where that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical


def versions() -> dict[str, str]:
    """Versions of what the times depend on."""
    installed = {}
    for package in _PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), **installed}
