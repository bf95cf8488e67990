"""`Published`: one version of a model's full weights in one contiguous bucket, with a digest; and the canary.

A digest proves that the bytes arrived. It does not prove that an engine uses them: the canary does, by
comparing log-probabilities of the engine and of the trainer on a fixed prompt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rpeg.backends.models import PolicyModel, Wanted, named_parameters
from rpeg.backends.samples import Ints
from rpeg.errors import RunError

ALIGNMENT_BYTES = 64
Bytes = npt.NDArray[np.uint8]

# Largest difference of a token's log-probability between two implementations of one model.
CANARY_TOLERANCE = {torch.float64: 1e-8, torch.float32: 5e-4, torch.float16: 5e-2, torch.bfloat16: 2e-1}


@dataclass(frozen=True)
class Entry:
    """One parameter: name (see `named_parameters`), shape, dtype (such as `float32`), place in the bucket."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset_bytes: int
    size_bytes: int

    def of(self, bucket: Tensor) -> Tensor:
        """This parameter as a view of a uint8 bucket."""
        raw = bucket[self.offset_bytes : self.offset_bytes + self.size_bytes]
        return raw.view(getattr(torch, self.dtype)).view(self.shape)


@dataclass(frozen=True)
class Manifest:
    """What lies where in a bucket. aliases: (other name, name) of parameters that are tied to one listed."""

    entries: tuple[Entry, ...]
    aliases: tuple[tuple[str, str], ...] = ()

    @property
    def size_bytes(self) -> int:
        last = self.entries[-1]
        return _aligned(last.offset_bytes + last.size_bytes)

    def text(self) -> str:
        """Canonical JSON."""
        rows = [[e.name, list(e.shape), e.dtype, e.offset_bytes] for e in self.entries]
        return json.dumps([rows, [list(alias) for alias in self.aliases]], separators=(",", ":"))


@dataclass(frozen=True)
class Published:
    """Version `version` of a model: `flat` (uint8, on the host) as `manifest` says; `digest` covers both."""

    version: int
    manifest: Manifest
    flat: Bytes
    digest: str

    @property
    def size_bytes(self) -> int:
        return len(self.flat)

    def tensors(self) -> dict[str, Tensor]:
        """Every parameter by name, as read-only views of the bucket."""
        bucket = _as_tensor(self.flat)
        return {entry.name: entry.of(bucket) for entry in self.manifest.entries}

    @torch.no_grad()
    def load_into(self, module: nn.Module) -> str:
        """Copies the weights into the parameters of `module` in place; the digest of what it then holds.

        module: a PolicyModel or its Hugging Face module; tied parameters receive once. RunError names the
        parameters unless each receives exactly one tensor of its shape and dtype and each tensor is received.
        """
        received = named_parameters(module)
        tensors = self.tensors()
        tensors.update({alias: tensors[name] for alias, name in self.manifest.aliases})
        _check_fit(received, tensors, self.manifest)
        for name, parameter in received:
            parameter.copy_(tensors[name])
        return digest(self.manifest, dict(received))


def manifest_of(module: nn.Module) -> Manifest:
    """The bucket layout of a module that is not sharded, tied parameters once."""
    named = [(name, tuple(p.shape), p.dtype) for name, p in named_parameters(module)]
    return layout(named, _aliases(module))


def layout(
    named: Iterable[tuple[str, tuple[int, ...], torch.dtype]], aliases: Iterable[tuple[str, str]] = ()
) -> Manifest:
    """Parameters one after another, each at a multiple of `ALIGNMENT_BYTES`."""
    entries, offset = [], 0
    for name, shape, dtype in named:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        entries.append(Entry(name, tuple(shape), str(dtype).removeprefix("torch."), offset, size))
        offset = _aligned(offset + size)
    return Manifest(tuple(entries), tuple(aliases))


@torch.no_grad()
def pack(manifest: Manifest, tensors: Mapping[str, Tensor]) -> Bytes:
    """The full tensors as one bucket on the host; gaps are zero."""
    bucket = torch.zeros(manifest.size_bytes, dtype=torch.uint8)
    for entry in manifest.entries:
        entry.of(bucket).copy_(tensors[entry.name])
    return np.asarray(bucket.numpy())


def publish(version: int, manifest: Manifest, tensors: Mapping[str, Tensor]) -> Published:
    """Full tensors as a version."""
    return of_bytes(version, manifest, pack(manifest, tensors))


def of_bytes(version: int, manifest: Manifest, flat: Bytes) -> Published:
    """A packed bucket as a version."""
    bucket = _as_tensor(flat)
    return Published(
        version, manifest, flat, digest(manifest, {e.name: e.of(bucket) for e in manifest.entries})
    )


def digest(manifest: Manifest, tensors: Mapping[str, Tensor]) -> str:
    """blake2b-128 in hexadecimal of the manifest and of every parameter's bytes, wherever they lie."""
    state = hashlib.blake2b(manifest.text().encode(), digest_size=16)
    for entry in manifest.entries:
        raw = tensors[entry.name].detach().contiguous().view(-1).view(torch.uint8).cpu()
        state.update(raw.numpy().data)
    return state.hexdigest()


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
    """The largest difference of two canaries; RunError names both values where it is beyond tolerance.

    dtype: the coarser of the two dtypes.
    """
    tolerance = CANARY_TOLERANCE[dtype]
    if a.shape != b.shape:
        raise RunError(f"canary: {a.shape} values on one side, {b.shape} on the other")
    difference = np.abs(a - b)
    worst = int(np.argmax(np.where(np.isfinite(difference), difference, np.inf)))
    if not difference[worst] <= tolerance:
        raise RunError(
            f"canary: at number {worst + 1} trainer and engine give {a[worst]:.6g} and {b[worst]:.6g}, "
            f"apart by more than {tolerance:g} for {dtype}: the engine does not use what it received. "
            "Check tied or quantised parameters, and that both load the same architecture and configuration"
        )
    return float(difference[worst])


def _check_fit(
    received: list[tuple[str, nn.Parameter]], tensors: Mapping[str, Tensor], manifest: Manifest
) -> None:
    missing = [name for name, _ in received if name not in tensors]
    held = {name for name, _ in received}
    left = [entry.name for entry in manifest.entries if entry.name not in held]
    if missing or left:
        raise RunError(
            f"weights do not fit the module: {len(missing)} of its parameters receive nothing "
            f"({missing[:3]}), {len(left)} published ones find no parameter ({left[:3]}); "
            "load both with the same heads"
        )
    for name, parameter in received:
        got = tensors[name]
        if got.shape != parameter.shape or got.dtype != parameter.dtype:
            raise RunError(
                f"weights do not fit the module: {name} is {tuple(parameter.shape)} {parameter.dtype} there "
                f"and {tuple(got.shape)} {got.dtype} in what was published"
            )


def _aliases(module: nn.Module) -> list[tuple[str, str]]:
    first: dict[int, str] = {}
    out = []
    for name, parameter in module.named_parameters(remove_duplicate=False):
        name = name.removeprefix("hf.")
        if id(parameter) in first:
            out.append((name, first[id(parameter)]))
        first.setdefault(id(parameter), name)
    return out


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
