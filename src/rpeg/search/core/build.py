"""Builds the compiled core with the C compiler that is there. Imports nothing of RPEG: installation runs this file."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = Path(__file__).parent / "c"

# No contraction to fused operations: the same numbers on every processor.
FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=default")


def file_name() -> str:
    """Of the library for these sources: others have another name, so that a stale one is never loaded."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"core-{digest.hexdigest()}.so"


def build(directory: Path) -> Path:
    """Compiles into a directory; the library. OSError or, with the words of the compiler, CalledProcessError."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / file_name()
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    with TemporaryDirectory(dir=directory) as work:
        made = Path(work) / target.name
        command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, *sources, "-lm", "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.replace(target)  # whole or not at all, also where two processes build at once
    return target
