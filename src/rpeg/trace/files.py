"""Traces on disk.

    RUN/plan.json
    RUN/trace-1/plan.json          where the run went on by another plan afterwards
    RUN/trace-1/header.json        steps, first step, source, seed
    RUN/trace-1/driver.jsonl       one `Entry` a line
    RUN/trace-1/spans-WORKER.jsonl one `Span` a line
    RUN/trace-2/…                  after a resume

Every line is written when what it tells has happened, and a torn last line is dropped when read: a crash loses nothing
that was known before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast, get_args

from rpeg.errors import InputError
from rpeg.fields import Fields, parse_json, read_json, read_text, shown
from rpeg.plan import read_plan, write_plan
from rpeg.trace.entry import Entry
from rpeg.trace.span import Span
from rpeg.trace.trace import Source, Trace

SCHEMA = 1
MOST_STEPS = 10**7
_ENCODER = json.JSONEncoder(separators=(",", ":"))

T = TypeVar("T")


class JsonLines:
    """A file to which JSON objects are appended, one a line, each line given to the system whole.

    It is written to while devices work: the encoder is made once, and no layer lies between it and the file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, value: dict[str, Any]) -> None:
        """Raises OSError, with the file's name."""
        line = f"{_ENCODER.encode(value)}\n".encode()
        try:
            while line:  # a disk that is full takes a part, and refuses the rest with an error
                line = line[self._file.write(line) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._file.name) from None

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def begin_stretch(run: Path, source: Source, steps: int, first_step: int, seed: int | None = None) -> Path:
    """A new `trace-N` directory in a run's directory, with its header."""
    number = 1 + max((_number(path) for path in run.glob("trace-*")), default=0)
    directory = run / f"trace-{number}"
    directory.mkdir(parents=True)
    header = {"schema": SCHEMA, "source": source, "steps": steps, "first_step": first_step, "complete": False}
    told = {} if seed is None else {"seed": seed}
    (directory / "header.json").write_text(json.dumps(header | told) + "\n")
    return directory


def sources(run: Path) -> tuple[Source, ...]:
    """Who did the work of each stretch in a run's directory, in order. Raises InputError for a header without sense."""
    headers = sorted(run.glob("trace-*/header.json"), key=lambda path: _number(path.parent))
    return tuple(_read_header(header)[0] for header in headers)


def end_stretch(directory: Path) -> None:
    """Marks a stretch as complete: the run reached its last step."""
    header = json.loads((directory / "header.json").read_text())
    (directory / "header.json").write_text(json.dumps({**header, "complete": True}) + "\n")


def span_file(directory: Path, worker: str) -> Path:
    return directory / f"spans-{worker}.jsonl"


def driver_file(directory: Path) -> Path:
    return directory / "driver.jsonl"


def write_trace(trace: Trace, run: Path) -> Path:
    """Writes a whole trace, with its plan, into a run's directory; returns the stretch's directory."""
    run.mkdir(parents=True, exist_ok=True)
    write_plan(trace.plan, run / "plan.json")
    directory = begin_stretch(run, trace.source, trace.steps, trace.first_step, trace.seed)
    with JsonLines(driver_file(directory)) as lines:
        for entry in trace.entries:
            lines.write(entry.to_json())
    for worker in dict.fromkeys(span.worker for span in trace.spans):
        with JsonLines(span_file(directory, worker)) as lines:
            for span in trace.spans:
                if span.worker == worker:
                    lines.write(span.to_json())
    if trace.complete:
        end_stretch(directory)
    return directory


def read_traces(path: Path) -> tuple[Trace, ...]:
    """All stretches of a run's directory in order, or the one stretch that `path` is.

    Raises InputError where there is none or a line in the middle cannot be read.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if (path / "header.json").exists():
        return (_read_stretch(path, path.parent / "plan.json"),)
    stretches = sorted((p for p in path.glob("trace-*") if (p / "header.json").exists()), key=_number)
    if not stretches:
        raise InputError(
            f"{path} holds no trace: expected a run's directory with trace-1, or such a directory itself"
        )
    return tuple(_read_stretch(stretch, path / "plan.json") for stretch in stretches)


def _read_stretch(directory: Path, plan_path: Path) -> Trace:
    source, steps, first_step, complete, seed = _read_header(directory / "header.json")
    spans = (path for path in sorted(directory.glob("spans-*.jsonl")))
    own = directory / "plan.json"
    return Trace(
        read_plan(own if own.exists() else plan_path),
        source,
        steps,
        first_step,
        tuple(_lines(driver_file(directory), Entry.from_json)),
        tuple(span for path in spans for span in _lines(path, Span.from_json)),
        complete,
        seed,
    )


def _read_header(path: Path) -> tuple[Source, int, int, bool, int | None]:
    """(source, steps, first step, complete, seed)."""
    fields = Fields(f"{path}: the header", read_json(path))
    schema = fields.get("schema")
    if schema != SCHEMA:
        raise InputError(f"{path.parent} has trace schema {shown(schema)}; this version reads {SCHEMA}")
    source = cast("Source", fields.one_of("source", get_args(Source)))
    first_step = fields.whole("first_step", least=0)
    steps = fields.whole("steps", least=first_step)
    if steps > MOST_STEPS:
        raise InputError(f"{path}: steps is {steps}; a run has {MOST_STEPS} at most")
    complete = fields.flag("complete")
    seed = fields.whole("seed", least=0) if "seed" in fields.data else None
    fields.finish()
    return source, steps, first_step, complete, seed


def _lines(path: Path, read: Callable[[object], T]) -> Iterator[T]:
    """What the lines of a file hold. InputError names the file and the line that cannot be read."""
    if not path.exists():
        return
    lines = read_text(path).split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            value = parse_json(line, f"{path}:{number}")
        except InputError:
            if number == len(lines):  # torn by a crash while it was written
                return
            raise
        try:
            yield read(value)
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from None


def _number(path: Path) -> int:
    tail = path.name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0
