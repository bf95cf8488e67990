"""`Published`: what one rank contributes to a version of a model's weights, in one contiguous bucket.

The contributions of all ranks of a trainer are together the model, each number once. A receiver takes them one after
another and keeps of each what it holds itself, so that neither side ever holds more than its own part and one bucket.

A digest is of numbers at their places in whole parameters, whatever parts they travel in. It proves that the bytes
arrived, not that an engine uses them: the canary does, by comparing log-probabilities of the engine and of the trainer
on a fixed prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rpeg.backends.boxes import Box, Piece
from rpeg.backends.checksum import checksum, digest
from rpeg.backends.headed import named_parameters
from rpeg.backends.models import PolicyModel, Wanted
from rpeg.backends.samples import Ints
from rpeg.errors import RunError

ALIGNMENT_BYTES = 64
Bytes = npt.NDArray[np.uint8]

# Mean difference of tokens' log-probabilities between two implementations of one model, at most. In bfloat16 a healthy
# engine shows 0.010 to 0.018, and one whose weights were lost 0.201: https://github.com/huggingface/trl/issues/5312.
CANARY_TOLERANCE = {torch.float64: 1e-8, torch.float32: 5e-4, torch.float16: 2e-2, torch.bfloat16: 6e-2}


@dataclass(frozen=True)
class Entry:
    """A part of a parameter: name (see `named_parameters`), shape of the whole, dtype (such as `float32`), place in the
    bucket."""

    name: str
    shape: tuple[int, ...]
    box: Box
    dtype: str
    offset_bytes: int
    size_bytes: int

    def of(self, bucket: Tensor) -> Tensor:
        """This part as a view of a uint8 bucket."""
        raw = bucket[self.offset_bytes : self.offset_bytes + self.size_bytes]
        return raw.view(getattr(torch, self.dtype)).view(self.box.shape)


@dataclass(frozen=True)
class Manifest:
    """What lies where in a bucket. aliases: (other name, name) of parameters that are tied to one listed."""

    entries: tuple[Entry, ...]
    aliases: tuple[tuple[str, str], ...] = ()

    @property
    def size_bytes(self) -> int:
        return max((_aligned(e.offset_bytes + e.size_bytes) for e in self.entries), default=0)


@dataclass(frozen=True)
class Published:
    """A contribution to version `version`: `flat` (uint8, on the host) as `manifest` says.

    digest: of the whole version.
    """

    version: int
    manifest: Manifest
    flat: Bytes
    digest: str

    @property
    def size_bytes(self) -> int:
        return len(self.flat)

    def pieces(self) -> list[Piece]:
        """Its parts, as read-only views of the bucket."""
        bucket = _as_tensor(self.flat)
        return [Piece(e.name, e.shape, e.box, e.of(bucket)) for e in self.manifest.entries]

    def tensors(self) -> dict[str, Tensor]:
        """The parts by parameter name, as read-only views of the bucket."""
        return {piece.name: piece.tensor for piece in self.pieces()}

    def load_into(self, module: nn.Module) -> str:
        """Copies a version that is all here into the parameters of `module` in place; the digest of what it then holds.

        module: a PolicyModel or its Hugging Face module; tied parameters receive once. RunError as for `load`.
        """
        held = pieces_of(module)
        load(held, [self])
        aliases = {alias for alias, _ in self.manifest.aliases}
        return digest(checksum(piece for piece in held if piece.name not in aliases))


def pieces_of(module: nn.Module) -> list[Piece]:
    """Every parameter of a module that is not cut, tied ones once."""
    return [Piece(n, tuple(p.shape), Box.whole(p.shape), p.detach()) for n, p in named_parameters(module)]


def layout(pieces: Iterable[Piece], aliases: Iterable[tuple[str, str]] = ()) -> Manifest:
    """Parts one after another, each at a multiple of `ALIGNMENT_BYTES`."""
    entries, offset = [], 0
    for piece in pieces:
        size = piece.box.numel * piece.tensor.dtype.itemsize
        dtype = str(piece.tensor.dtype).removeprefix("torch.")
        entries.append(Entry(piece.name, piece.shape, piece.box, dtype, offset, size))
        offset = _aligned(offset + size)
    return Manifest(tuple(entries), tuple(aliases))


@torch.no_grad()
def publish(
    version: int, pieces: Sequence[Piece], version_digest: str, aliases: Iterable[tuple[str, str]] = ()
) -> Published:
    """Those of the pieces that are owned, as one bucket on the host; gaps are zero."""
    owned = [piece for piece in pieces if piece.owned and piece.box.numel]
    names = {piece.name for piece in owned}
    manifest = layout(owned, [pair for pair in aliases if pair[1] in names])
    bucket = torch.zeros(manifest.size_bytes, dtype=torch.uint8)
    for entry, piece in zip(manifest.entries, owned, strict=True):
        entry.of(bucket).copy_(piece.tensor)
    return Published(version, manifest, np.asarray(bucket.numpy()), version_digest)


@torch.no_grad()
def load(
    held: Sequence[Piece], contributions: Iterable[Published], elsewhere: Collection[str] = frozenset()
) -> None:
    """Copies into the tensors of `held` what the contributions have of them, one contribution at a time.

    elsewhere: names of parameters that other ranks hold. RunError names the parameters unless every number that is held
    is received exactly once and every parameter that comes finds one of its shape and dtype, here or elsewhere.
    """
    received = dict.fromkeys((piece.name for piece in held), 0)
    by_name = {piece.name: piece for piece in held}
    unknown: set[str] = set()
    for published in contributions:
        aliases: dict[str, list[str]] = {}
        for alias, name in published.manifest.aliases:
            aliases.setdefault(name, []).append(alias)
        for piece in published.pieces():
            targets = [by_name[n] for n in (piece.name, *aliases.get(piece.name, ())) if n in by_name]
            if not targets and piece.name not in elsewhere:
                unknown.add(piece.name)
            for target in targets:
                _check_fit(target, piece)
                received[target.name] += _copy_overlap(piece, target)
    missing = [piece.name for piece in held if received[piece.name] != piece.box.numel]
    if missing or unknown:
        raise RunError(
            f"weights do not fit the module: {len(missing)} of its parameters receive nothing, or not all of "
            f"themselves once ({missing[:3]}), {len(unknown)} published ones find no parameter "
            f"({sorted(unknown)[:3]}); load both with the same heads"
        )


def _copy_overlap(source: Piece, target: Piece) -> int:
    """How many numbers were copied."""
    shared = source.box.overlap(target.box)
    if shared is None:
        return 0
    target.tensor[shared.within(target.box)].copy_(source.tensor[shared.within(source.box)])
    return shared.numel


def _check_fit(target: Piece, got: Piece) -> None:
    if got.shape != target.shape or got.tensor.dtype != target.tensor.dtype:
        raise RunError(
            f"weights do not fit the module: {target.name} is {target.shape} {target.tensor.dtype} there "
            f"and {got.shape} {got.tensor.dtype} in what was published"
        )


def canary_tokens(vocab_size: int, length: int = 16) -> Ints:
    """A fixed prompt that spreads over the vocabulary."""
    return (np.arange(length, dtype=np.int64) * 7919 + 11) % vocab_size


@torch.no_grad()
def canary_logprobs(module: nn.Module, tokens: Ints) -> npt.NDArray[np.float64]:
    """(n,) log-probability of each of the n tokens after the first, at temperature 1.

    module: a Hugging Face causal language model, or a PolicyModel: without an `lm` head it gives (n,) values, with
    both (2n,), the values after the log-probabilities.
    """
    device = next(module.parameters()).device
    row = torch.from_numpy(np.asarray(tokens, dtype=np.int64)).to(device)
    if isinstance(module, PolicyModel):
        index = torch.arange(len(row) - 1, device=device)
        wanted = Wanted(logprobs="lm" in module.heads, values="value" in module.heads)
        out = module(row[None], index, row[1:], wanted)
        result: Any = torch.cat([out[name] for name in ("logprobs", "new_values") if name in out])
    else:
        logits = module(input_ids=row[None], use_cache=False).logits[0, :-1]
        logits = logits if logits.dtype is torch.float64 else logits.float()
        result = logits.log_softmax(-1).gather(-1, row[1:, None])[:, 0]
    return np.asarray(result.double().cpu().numpy())


def check_canary(a: npt.NDArray[Any], b: npt.NDArray[Any], dtype: torch.dtype) -> float:
    """The mean difference of two canaries; RunError where it is beyond tolerance names both values where they are
    furthest apart.

    dtype: the coarser of the two dtypes.
    """
    tolerance = CANARY_TOLERANCE[dtype]
    if a.shape != b.shape:
        raise RunError(f"canary: {a.shape} values on one side, {b.shape} on the other")
    difference = np.abs(a - b)
    mean = float(difference.mean())
    if not mean <= tolerance:
        worst = int(np.argmax(np.where(np.isfinite(difference), difference, np.inf)))
        raise RunError(
            f"canary: trainer and engine differ by {mean:.3g} a token where {dtype} allows {tolerance:g}; at number "
            f"{worst + 1} they give {a[worst]:.6g} and {b[worst]:.6g}: the engine does not use what it received. "
            "Check tied or quantised parameters, and that both load the same architecture and configuration"
        )
    return mean


def aliases_of(module: nn.Module) -> tuple[tuple[str, str], ...]:
    """(other name, name) of each tied parameter."""
    first: dict[int, str] = {}
    out = []
    for name, parameter in module.named_parameters(remove_duplicate=False):
        name = name.removeprefix("hf.")
        if id(parameter) in first:
            out.append((name, first[id(parameter)]))
        first.setdefault(id(parameter), name)
    return tuple(out)


def _as_tensor(flat: Bytes) -> Tensor:
    """A uint8 tensor over the same memory. It is only read: a transport's read-only buffer is fine."""
    if flat.flags.writeable:
        return torch.from_numpy(flat)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(flat)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
