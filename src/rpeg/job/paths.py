"""Paths as a job file spells them: refused where no file can have such a name, so that looking at the disk is safe."""

from __future__ import annotations

import os
from pathlib import Path

from rpeg.errors import InputError

LONGEST_PATH_BYTES = 4095  # PATH_MAX of Linux without its closing NUL
LONGEST_NAME_BYTES = 255  # NAME_MAX
KERNEL_DIRECTORIES = ("/proc", "/sys")  # no directory can be made there, though root may seem to


def check_path(path: str) -> None:
    """InputError where no file can be called so: a NUL byte, too long, or the home of an unknown user."""
    if "\0" in path:
        raise InputError("holds a NUL byte, which no path may. Remove it.")
    sizes = [len(name.encode("utf-8", "surrogatepass")) for name in path.split("/")]
    if max(sizes) > LONGEST_NAME_BYTES:
        raise InputError(
            f"has a name of {max(sizes)} bytes between two slashes, {LONGEST_NAME_BYTES} are allowed. Shorten it."
        )
    if sum(sizes) + len(sizes) - 1 > LONGEST_PATH_BYTES:
        raise InputError(f"is longer than a path may be, {LONGEST_PATH_BYTES} bytes. Shorten it.")
    if path.startswith("~") and os.path.expanduser(path) == path:
        user = path.split("/")[0].removeprefix("~")
        raise InputError(f"starts at the home of user '{user}', who is not known here. Write the path out.")


def absolute(path: str, base_dir: str | Path) -> str:
    """A path from `base_dir` on, `~` expanded. Never raises, also where `check_path` does."""
    return str(Path(base_dir, os.path.expanduser(path)).absolute())


def why_not_output(path: str) -> str | None:
    """What forbids to write a run into a directory, with the way out; None where nothing does. Changes nothing.

    It must be new, empty, or hold an earlier run, and its nearest parent that exists must let it be made.
    """
    real = os.path.realpath(path)
    kernel = next((top for top in KERNEL_DIRECTORIES if f"{real}/".startswith(f"{top}/")), None)
    if kernel is not None:
        return f"{path} is below {kernel}, where the kernel lets no directory be made. Choose another path."
    there = next(str(p) for p in (Path(path), *Path(path).parents) if os.path.lexists(p) or p == p.parent)
    if not os.path.isdir(there):
        return f"{there} is a file, a directory is needed. Choose another path."
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} is not writable. Choose another path, or change its permissions."
    if there == path and not _may_hold_a_run(Path(path)):
        return (
            f"{path} holds other files, and is not the directory of an earlier run: a run would mix with them. "
            f"Choose a new directory, such as {os.path.join(path, 'run')}."
        )
    return None


def _may_hold_a_run(directory: Path) -> bool:
    """Whether a directory is empty (but for hidden files and a run's lock), or a run has begun in it."""
    try:
        names = [name for name in os.listdir(directory) if not name.startswith(".") and name != "lock"]
    except OSError:
        return True  # writable but not readable: nothing can be said against it
    begun = {"job.yaml", "metrics.jsonl"} <= set(names)  # as the training of a reward model leaves it
    return not names or begun or any(name == "plan.json" or name.startswith("trace-") for name in names)
