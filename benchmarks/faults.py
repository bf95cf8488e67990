"""Runs that are struck again and again: does any sample get lost, doubled or trained out of bound?

    python benchmarks/faults.py --runs 20 --faults 10

Each run trains a random two-layer model on two devices by one of three plans, by `rpeg train` in a process of its own.
Faults come from outside, at random moments drawn from the run's seed, one for every five steps:

kill      a worker is killed            (SIGKILL)
stop      a worker is stopped           (SIGSTOP)
memory    a worker gets no more memory  (its address space is limited to what it has)
writing   a worker or the driver is killed while a checkpoint is being written
driver    the driver is killed, and its workers with it within 60 s
full      the disk of the run is full   (a tmpfs of 48 MB, filled)
reward    the reward takes a second a sample for a while

Where `rpeg train` ends without having finished, it is called again with --resume. A run counts where it ends finished,
its trace is proven over all stretches, and its weights are bit for bit those of the undisturbed run of the same plan.
Needs Linux, and root to mount the disk; without it a worker is killed instead. Results are kept, a line of JSON for each
run, and only missing ones run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from _struck import STEPS_A_FAULT, files, steps_of, tiny_model
from rpeg.backends.training.checkpoint import read_weights
from rpeg.runtime.heartbeat import Beat
from rpeg.runtime.run_directory import RunDirectory
from rpeg.trace import read_traces
from rpeg.verify import prove_run

RESULTS = Path(__file__).parent / "results" / "faults.jsonl"
PLANS = ("split", "sharded", "asynchronous")
KINDS = ("kill", "kill", "stop", "memory", "writing", "driver", "full", "reward")
DISK_BYTES = 48 * 2**20
LIMIT_SECONDS = 2400.0
ORPHANS_SECONDS = 60.0


@dataclass
class Struck:
    """One run and what befell it. orphans_seconds: the longest that a worker has outlived a killed driver."""

    run: Path
    seed: int
    faults: list[str] = field(default_factory=list)
    resumed: int = 0
    orphans_seconds: float = 0.0
    errors: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """Beside the run's disk, which may be full."""
        return self.run.parent.with_suffix(".log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first run's seed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with TemporaryDirectory() as scratch:
        model = tiny_model(Path(scratch) / "model")
        for seed in range(arguments.first, arguments.first + arguments.runs):
            if any(row["seed"] == seed for row in _rows(arguments.results)):
                continue
            row = _measure(Path(scratch), model, seed, arguments.faults)
            with arguments.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    rows = _rows(arguments.results)
    bad = [row["seed"] for row in rows if not (row["finished"] and row["proven"] and row["equal"])]
    bad += [row["seed"] for row in rows if len(row["faults"]) < arguments.faults]
    faults = sum(len(row["faults"]) for row in rows)
    print(
        f"{len(rows)} runs, {faults} faults: {dict(Counter(f for row in rows for f in row['faults']))}; bad: {bad}"
    )
    if bad:
        raise SystemExit(1)


def _rows(results: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _measure(scratch: Path, model: Path, seed: int, faults: int) -> dict[str, object]:
    name = PLANS[seed % len(PLANS)]
    straight = scratch / f"straight-{name}"
    if not straight.exists():
        with files(straight, model, name, faults) as command:
            subprocess.run(command, check=True, capture_output=True)
    began = time.monotonic()
    directory = scratch / f"run-{seed}"
    with _disk(directory) as limited, files(directory, model, name, faults) as command:
        struck = Struck(directory / "run", seed)
        _strike(struck, command, faults, limited)
        run = RunDirectory(struck.run)
        last = run.last_checkpoint
        proof = prove_run(read_traces(struck.run))
        return {
            "seed": seed,
            "plan": name,
            "faults": struck.faults,
            "resumed": struck.resumed,
            "stretches": len(list(struck.run.glob("trace-*"))),
            "finished": last is not None and last.steps == steps_of(faults),
            "proven": proof.holds,
            "findings": [finding.sentence for finding in proof.findings][:3],
            "equal": last is not None and _weights(last.path) == _weights(_last(straight / "run")),
            "orphans_seconds": round(struck.orphans_seconds, 1),
            "seconds": round(time.monotonic() - began, 1),
            "ends": struck.errors,
        }


def _last(run: Path) -> Path:
    return RunDirectory(run).checkpoints()[-1].path


def _weights(checkpoint: Path) -> dict[str, bytes]:
    found = read_weights(checkpoint / "actor")
    return {name: tensor.numpy().tobytes() for name, tensor in found.items()}


def _strike(struck: Struck, command: list[str], faults: int, limited: bool) -> None:
    """Runs, strikes and resumes until the run has finished or its time is up."""
    draw = random.Random(struck.seed)
    drawn = [draw.choice(KINDS) for _ in range(faults)]
    kinds = ["kill" if kind == "full" and not limited else kind for kind in drawn]
    moments = [(STEPS_A_FAULT * number, draw.uniform(0, 0.5)) for number in range(len(kinds))]
    process = _start(command, struck)
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        if process.poll() is not None:
            struck.errors.append(_end_of(struck))
            _relieve(struck)
            if process.returncode == 0:
                return
            struck.resumed += 1
            process = _start([*command, "--resume"], struck)
        due = moments[0] if moments else None
        if due is not None and _is_running(struck.run) and _recorded(struck.run) >= due[0]:
            moments.pop(0)
            time.sleep(due[1])
            kind = kinds[len(struck.faults)]
            struck.faults.append(kind)
            _inflict(kind, struck, process, draw)
        time.sleep(0.05)
    process.kill()


def _inflict(kind: str, struck: Struck, process: subprocess.Popen[bytes], draw: random.Random) -> None:
    if kind == "writing":
        limit = time.monotonic() + 10
        while not list(struck.run.glob("checkpoint-*.partial")) and time.monotonic() < limit:
            time.sleep(0.002)
        kind = draw.choice(("kill", "driver"))
    beats = _beats(struck.run)
    victim = draw.choice(beats).pid if beats else None
    if kind == "full":
        with contextlib.suppress(OSError), (struck.run.parent / "filler").open("wb") as file:
            while True:
                file.write(bytes(2**16))
                file.flush()
    elif kind == "reward":
        (struck.run.parent / "slow").touch()
        time.sleep(2)
        (struck.run.parent / "slow").unlink()
    elif kind == "driver":
        process.kill()
        process.wait()
        began = time.monotonic()
        while any(_lives(beat) for beat in beats) and time.monotonic() - began < 2 * ORPHANS_SECONDS:
            time.sleep(0.1)
        struck.orphans_seconds = max(struck.orphans_seconds, time.monotonic() - began)
    elif victim is not None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # it is being replaced
            if kind == "memory":
                now = psutil.Process(victim).memory_info().vms
                resource.prlimit(victim, resource.RLIMIT_AS, (now, now))
            else:
                os.kill(victim, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)


def _relieve(struck: Struck) -> None:
    (struck.run.parent / "filler").unlink(missing_ok=True)


def _start(command: list[str], struck: Struck) -> subprocess.Popen[bytes]:
    with struck.log.open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def _end_of(struck: Struck) -> str:
    lines = struck.log.read_text(errors="replace").strip().splitlines()
    told = [line for line in lines if line.startswith("rpeg:") or "worker " in line or "lacking" in line]
    directory = struck.run.parent
    told = [line.replace(str(struck.run), "RUN").replace(str(directory.parent), "…") for line in told]
    return told[-1][:300] if told else ""


def _stretch(run: Path) -> Path | None:
    found = sorted(run.glob("trace-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return found[-1] if found else None


def _beats(run: Path) -> list[Beat]:
    stretch = _stretch(run)
    files = sorted((stretch / "beats").glob("*.json")) if stretch is not None else []
    return [beat for file in files if (beat := Beat.read(file)) is not None]


def _is_running(run: Path) -> bool:
    """Whether the newest stretch has begun to run items."""
    stretch = _stretch(run)
    log = stretch / "driver.jsonl" if stretch is not None else None
    return log is not None and log.exists() and log.stat().st_size > 0 and any(map(_lives, _beats(run)))


def _lives(beat: Beat) -> bool:
    try:
        return psutil.Process(beat.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _recorded(run: Path) -> int:
    return len(RunDirectory(run).steps_recorded())


@contextmanager
def _disk(directory: Path) -> Iterator[bool]:
    """A disk of its own for a run, where the machine allows it."""
    directory.mkdir()
    mounted = not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)], check=False
    ).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], check=True)


if __name__ == "__main__":
    main()
