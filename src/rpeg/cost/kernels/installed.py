"""Kernel tables from the user's own installation of `aiconfigurator-core`, where it is not the bundled version."""

from __future__ import annotations

import contextlib
from importlib import metadata, util
from pathlib import Path

from rpeg.cluster import device_kind
from rpeg.cost.kernels.distil import SYSTEMS, distil
from rpeg.cost.kernels.files import KernelFile, peaks_of, read
from rpeg.job.cache import cache_directory

PACKAGE = "aiconfigurator-core"
_MODULE = "aiconfigurator_core"


def tables(kind: str, bundled_version: str) -> KernelFile | None:
    """The tables of a kind, distilled once and kept in the cache.

    None where the package or pyarrow is absent, holds nothing of this kind, or is the version that is bundled.
    """
    folder = data_folder()
    if folder is None or kind not in SYSTEMS or not (folder / SYSTEMS[kind]).is_dir():
        return None
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:  # a folder of that name on the path is not an installation
        return None
    if version == bundled_version:
        return None
    kept = cache_directory() / f"aiconfigurator-{version}-{kind}.json"
    if kept.exists():
        return read(kept)
    file = distilled(kind, folder, version)
    with contextlib.suppress(OSError):  # a cache that cannot be written costs the time of distilling again
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(file.dumps(), encoding="utf-8")
    return file


def data_folder() -> Path | None:
    """Where the package keeps its measurements; None where it cannot be read."""
    if util.find_spec("pyarrow") is None:
        return None
    found = util.find_spec(_MODULE)
    places = found.submodule_search_locations if found is not None else None
    folder = Path(next(iter(places))) / "systems" / "data" if places else None
    return folder if folder is not None and folder.is_dir() else None


def distilled(kind: str, data: Path, version: str) -> KernelFile:
    """The tables of a kind with their provenance."""
    made, files = distil(device_kind(kind), data)
    provenance = {
        "what": "efficiency of measured kernels over shape",
        "package": PACKAGE,
        "version": version,
        "licence": "Apache-2.0, Copyright NVIDIA CORPORATION & AFFILIATES",
        "url": "https://pypi.org/project/aiconfigurator-core/",
        "files": files,
    }
    return KernelFile(kind, peaks_of(device_kind(kind)), provenance, tuple(made))
