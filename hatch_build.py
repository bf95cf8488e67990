"""Compiles the core of the search into the package while it is installed; without a compiler it stays out."""

from __future__ import annotations

import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src/rpeg/search/core")


class CoreBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The library depends on the platform and not on the version of Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        builder = runpy.run_path(str(Path(self.root) / PACKAGE / "build.py"))
        try:
            made = builder["build"](Path(self.root) / PACKAGE)
        except (OSError, subprocess.CalledProcessError) as error:
            words = getattr(error, "stderr", None) or error
            print(
                f"The search's core was not compiled, and will be at its first use: {words}", file=sys.stderr
            )
            return
        for stale in (Path(self.root) / PACKAGE).glob("core-*.so"):
            if stale.name != made.name:
                stale.unlink()
        if self.target_name == "wheel" and version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["force_include"][str(made)] = f"rpeg/search/core/{made.name}"
