"""A trainer's state on disk: safetensors and JSON, independent of the layout that wrote it.

weights.safetensors     parameters by name, where adapters are trained those alone
optimizer.safetensors   `exp_avg/<name>` and `exp_avg_sq/<name>`, where there is an optimizer
trainer.json            format, updates, skipped, optimizer configuration, digest of the weights

Where several ranks hold the model each writes its own part, `weights-2-of-4.safetensors`: the file's metadata say for
each tensor the shape of the whole, where the part begins, and a digest of its bytes. A reader takes from all files what
it holds itself, and refuses a tensor whose bytes are not those that were written.

`snapshot` copies a rank's part to the host, `Snapshot.write` puts it on disk: training may go on in between.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rpeg.backends.adapters import merged, scale_of
from rpeg.backends.boxes import Box, Piece
from rpeg.backends.disk import room_for, sync, write_durably
from rpeg.backends.training import collectives
from rpeg.errors import InputError, RunError

if TYPE_CHECKING:
    from rpeg.backends.training.trainer import Trainer

FORMAT = 3
WEIGHTS, OPTIMIZER, COUNTS = "weights", "optimizer", "trainer.json"


@dataclass(frozen=True)
class File:
    """Tensors by name, and for each as JSON the shape of the whole and where the part begins."""

    tensors: Mapping[str, Tensor]
    places: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True)
class Snapshot:
    """One rank's part of a trainer's state, copied to the host. files: by name. counts: of the first rank's."""

    files: Mapping[str, File]
    counts: Mapping[str, Any] | None = None

    def weights(self) -> Snapshot:
        """Of the weights alone."""
        return Snapshot({n: file for n, file in self.files.items() if n.startswith(WEIGHTS)})

    def write(self, directory: Path) -> None:
        """Returns when the disk has it. OSError, with the bytes that lack where it is full."""
        directory.mkdir(parents=True, exist_ok=True)
        with room_for(directory, sum(file.size_bytes for file in self.files.values())):
            for name, file in self.files.items():
                _write_file(directory / name, file)
            if self.counts is not None:
                write_durably(directory / COUNTS, json.dumps(self.counts, indent=1))
        sync(directory)


def snapshot(trainer: Trainer, *, optimizer: bool = True, frozen: bool = False) -> Snapshot:
    """Collective. Without `optimizer` of the weights alone; with `frozen` of those, too, that stay as they are."""
    grid, files = trainer.grid, {}
    suffix = f"-{grid.rank + 1}-of-{grid.devices}" if grid.devices > 1 else ""
    stems = {WEIGHTS: trainer.parameters.weights() if frozen else trainer.changing()}
    if optimizer and trainer.optimizer is not None:
        stems[OPTIMIZER] = [p for kind in trainer.optimizer.moments for p in _moments(trainer, kind)]
    for stem, pieces in stems.items():
        owned = [piece for piece in pieces if piece.owned and piece.box.numel]
        if owned:
            files[f"{stem}{suffix}.safetensors"] = File(
                {p.name: p.tensor.detach().to("cpu", copy=True).contiguous() for p in owned},
                {p.name: json.dumps([list(p.shape), list(p.box.starts)]) for p in owned},
            )
    if not optimizer:
        return Snapshot(files)
    counts = {
        "format": FORMAT,
        "updates": trainer.updates,
        "skipped": trainer.skipped,
        "optimizer": asdict(trainer.optimizer.config) if trainer.optimizer else None,
        "digest": trainer.digest(),
    }
    return Snapshot(files, None if grid.rank else counts)


def save(trainer: Trainer, directory: str) -> None:
    """Collective; the directory is there, whole, when it returns on any rank."""
    _write_together(trainer, directory, snapshot(trainer), lambda path: None)


def save_model(trainer: Trainer, directory: str) -> None:
    """A Hugging Face directory (without tokenizer), adapters added to what they are beside. Collective: ranks leave their
    parts in it for the first one."""

    def finish(path: Path) -> None:
        trainer.model.save(str(path), merged(read_weights(path), scale_of(trainer.model)))
        for file in _files(path, WEIGHTS):
            file.unlink()

    _write_together(trainer, directory, snapshot(trainer, optimizer=False, frozen=True), finish)


@torch.no_grad()
def load_weights(trainer: Trainer, directory: Path) -> None:
    """The weights alone. InputError where they are of another model."""
    _read_pieces(directory, WEIGHTS, trainer.changing())


@torch.no_grad()
def load(trainer: Trainer, directory: str) -> None:
    """Raises InputError where the directory is not a state of this model."""
    path = Path(directory)
    try:
        counts = dict(json.loads((path / COUNTS).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{directory} holds no usable trainer state: {error}") from error
    if counts.get("format") != FORMAT:
        raise InputError(f"{path / COUNTS} has format {counts.get('format')}, this version reads {FORMAT}")
    load_weights(trainer, path)
    if trainer.optimizer is not None:
        _read_pieces(
            path,
            OPTIMIZER,
            [piece for kind in trainer.optimizer.moments for piece in _moments(trainer, kind)],
        )
    trainer.updates, trainer.skipped = int(counts["updates"]), int(counts["skipped"])


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Every parameter, whole, by name, of a state that any layout wrote."""
    found: dict[str, Tensor] = {}
    for file in _files(directory, WEIGHTS):
        with _opened(file) as (stored, places):
            for name, (shape, box, written) in places.items():
                part = _read_tensor(stored, name, written, file)
                whole = found.setdefault(name, torch.empty(shape, dtype=part.dtype))
                whole[box.within(Box.whole(shape))] = part
    return found


def _moments(trainer: Trainer, kind: str) -> Iterator[Piece]:
    assert trainer.optimizer is not None
    for piece in trainer.parameters.placed(trainer.optimizer.moments[kind]):
        yield replace(piece, name=f"{kind}/{piece.name}")


def _write_file(path: Path, file: File) -> None:
    places = {
        name: json.dumps([*json.loads(file.places[name]), _digest(tensor)])
        for name, tensor in file.tensors.items()
    }
    try:
        save_file(dict(file.tensors), path, metadata=places)
    except SafetensorError as error:  # the system's number is in its text alone
        full = f"os error {errno.ENOSPC}" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(path)) from error
    sync(path)


def _digest(tensor: Tensor) -> str:
    """Of a tensor's bytes on the host."""
    flat = (
        tensor.contiguous().view(-1).view(torch.uint8)
        if tensor.numel()
        else tensor.new_empty(0, dtype=torch.uint8)
    )
    return hashlib.blake2b(flat.numpy().data, digest_size=8).hexdigest()


def _read_tensor(stored: Any, name: str, written: str, file: Path) -> Tensor:
    """InputError where it has not the bytes that were written."""
    tensor: Tensor = stored.get_tensor(name)
    if _digest(tensor) != written:
        raise InputError(f"{file} is damaged: {name} has not the bytes that were written")
    return tensor


def _read_pieces(path: Path, stem: str, held: Sequence[Piece]) -> None:
    """Fills what is held from all files. InputError where they are of another model."""
    due = {piece.name: piece for piece in held}
    missing = {piece.name: piece.box.numel for piece in held}
    for file in _files(path, stem):
        with _opened(file) as (stored, places):
            for name, (shape, box, written) in places.items():
                piece = due.get(name)
                if piece is None:
                    continue
                if shape != piece.shape:
                    raise InputError(
                        f"{file} is the state of another model: {name} is {shape} there, {piece.shape} in the model"
                    )
                shared = box.overlap(piece.box)
                if shared is not None:
                    part = _read_tensor(stored, name, written, file)[shared.within(box)]
                    piece.tensor[shared.within(piece.box)] = part.to(piece.tensor.device)
                    missing[name] -= shared.numel
    absent = sorted(name for name, count in missing.items() if count)
    if absent:
        raise InputError(f"{path} is the state of another model: {absent[0]} is missing in the file")


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, Mapping[str, tuple[tuple[int, ...], Box, str]]]]:
    """(the open file, shape of the whole, box and digest of each tensor)."""
    try:
        with safe_open(str(file), framework="pt") as stored:
            places = {}
            for name, text in (stored.metadata() or {}).items():
                whole, begins, written = json.loads(text)
                starts, size = tuple(begins), stored.get_slice(name).get_shape()
                box = Box(starts, tuple(a + n for a, n in zip(starts, size, strict=True)))
                places[name] = (tuple(whole), box, written)
            yield stored, places
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{file} holds no usable trainer state: {error}") from error


def _files(path: Path, stem: str) -> list[Path]:
    """All ranks' parts."""
    found = sorted(f for f in path.glob(f"{stem}*.safetensors") if f.stem.partition("-")[0] == stem)
    if not found:
        raise InputError(f"{path} holds no usable trainer state: no {stem} in it")
    return found


def _write_together(
    trainer: Trainer, directory: str, state: Snapshot, finish: Callable[[Path], None]
) -> None:
    """Every rank writes beside the target; when all have, the first finishes and renames. All learn how it went."""
    grid = trainer.grid
    target = Path(directory)
    names = collectives.gather_json(f"{target.name}.new-{os.getpid()}", grid.block, trainer.device)
    fresh = target.with_name(names[0])
    try:
        _agree(trainer, directory, lambda: state.write(fresh))
        _agree(trainer, directory, lambda: None if grid.rank else _finish(fresh, target, finish))
    except RunError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _agree(trainer: Trainer, directory: str, act: Callable[[], None]) -> None:
    """RunError on every rank where it fails on one."""
    problem = ""
    try:
        act()
    except (OSError, SafetensorError) as error:
        problem = str(error)
    problems = [p for p in collectives.gather_json(problem, trainer.grid.block, trainer.device) if p]
    if problems:
        raise RunError(f"cannot write {directory}: {problems[0]}")


def _finish(fresh: Path, target: Path, finish: Callable[[Path], None]) -> None:
    """What stood at the target stays until the new directory is whole."""
    finish(fresh)
    old = target.with_name(f"{target.name}.old-{os.getpid()}")
    try:
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
