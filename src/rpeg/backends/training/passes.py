"""`Passes`: a model's forward and backward passes on one rank, whatever its place in a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from rpeg.backends.headed import Headed
from rpeg.backends.models import Wanted
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.microbatch import MicroBatch
from rpeg.backends.training.parallel.pipeline import Neighbours, Ways, one_forward_one_backward
from rpeg.backends.training.parameters import Parameters
from rpeg.backends.training.tally import Loss, Tally

TOKEN_WEIGHT = "_token_weight"
"""The sample column that carries what each token of a row weighs; a backward pass takes it out."""


@dataclass(frozen=True)
class Flight:
    """A micro-batch between its forward and its backward pass. arriving: hidden states of the stage before."""

    micro: MicroBatch
    out: dict[str, Tensor]
    arriving: Tensor | None
    chunk: int = 0


class Passes:
    """Collective over a pipeline, and over all that the parameters are gathered from.

    compute_dtype: of the matrix products, where that is for autocast to see to. hidden_dtype: of what stages exchange.
    """

    def __init__(
        self,
        model: Headed,
        parameters: Parameters,
        grid: Grid,
        *,
        compute_dtype: torch.dtype | None,
        hidden_dtype: torch.dtype,
    ) -> None:
        self.model, self.parameters, self.grid = model, parameters, grid
        self.compute_dtype, self.hidden_dtype = compute_dtype, hidden_dtype
        self.device = next(model.parameters()).device
        self.neighbours = _neighbours(grid)

    @property
    def is_last(self) -> bool:
        """Whether losses and results are computed here."""
        return self.neighbours is None or self.neighbours.is_last

    def forward(self, micro: MicroBatch, wanted: Wanted, chunk: int = 0) -> Flight:
        """The model, or one of its chunks, on a micro-batch, see `PolicyModel.forward`; what a stage makes is on its way
        to the next."""
        self.model.chunk = chunk
        if self.neighbours is None:
            with self.autocast():
                return Flight(micro, self._call(micro, wanted, None), None)
        arriving = None
        if self.neighbours.stage or chunk:
            arriving = self.neighbours.receive(self._hidden_shape(micro), -1, self.hidden_dtype, self.device)
            arriving.requires_grad_(torch.is_grad_enabled())
        with self.autocast():
            out = self._call(micro, wanted, arriving)
        if not self.model.ends_here:
            self.neighbours.send(out["hidden"].to(self.hidden_dtype), 1)
        return Flight(micro, out, arriving, chunk)

    def _call(self, micro: MicroBatch, wanted: Wanted, arriving: Tensor | None) -> dict[str, Tensor]:
        out: dict[str, Tensor] = self.model(
            micro.tokens, micro.index, micro.targets, wanted, micro.positions, arriving
        )
        return out

    def backward(self, flight: Flight, loss: Loss, tally: Tally, *, last: bool) -> None:
        """Adds a micro-batch's gradient. last: of the minibatch."""
        self.parameters.before_backward(last)
        self.model.chunk = flight.chunk  # layers that are computed again are those of the chunk
        if self.model.ends_here or self.neighbours is None:
            _total(flight, loss, tally).backward()  # type: ignore[no-untyped-call]
        else:
            hidden = flight.out["hidden"]
            gradient = self.neighbours.receive(tuple(hidden.shape), 1, self.hidden_dtype, self.device)
            hidden.backward(gradient.to(hidden.dtype))  # type: ignore[no-untyped-call]
        if flight.arriving is not None and self.neighbours is not None:
            assert flight.arriving.grad is not None
            self.neighbours.send(flight.arriving.grad, -1)
        self.parameters.after_backward()

    def train(self, micros: Sequence[MicroBatch], loss: Loss, wanted: Wanted, tally: Tally) -> None:
        """The gradients of all micro-batches of a minibatch."""
        order = one_forward_one_backward(
            len(micros), self.grid.size("pp"), self.grid.index("pp"), self.model.chunks
        )
        passes, flights = list(order), dict[tuple[int, int], Flight]()
        for one in passes:
            key = one.number, one.chunk
            if one.kind == "forward":
                flights[key] = self.forward(micros[one.number], wanted, one.chunk)
            else:
                self.backward(flights.pop(key), loss, tally, last=one is passes[-1])
        self.settle()

    def infer(
        self, micros: Iterator[MicroBatch], wanted: Wanted, names: Sequence[str]
    ) -> dict[str, list[Tensor]]:
        """What is wanted of each micro-batch that is no dummy, the same on all stages."""
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        for micro, out in self._outputs(micros, wanted):
            if not micro.dummy:
                for name in names:
                    parts[name].append(out[name] if self.is_last else self._room(micro))
        self.settle()
        self.parameters.release()
        if self.neighbours is not None:
            for name in names:
                sizes = [len(part) for part in parts[name]]
                if sizes:
                    whole = self.neighbours.from_last(torch.cat(parts[name]))
                    parts[name] = list(torch.split(whole, sizes))
        return parts

    def _outputs(
        self, micros: Iterator[MicroBatch], wanted: Wanted
    ) -> Iterator[tuple[MicroBatch, dict[str, Tensor]]]:
        """What the last chunk makes of each. As many micro-batches as there are stages go through a chunk in turn."""
        while together := list(islice(micros, self.grid.size("pp"))):
            for chunk in range(self.model.chunks - 1):
                for micro in together:
                    self.forward(micro, wanted, chunk)
            yield from ((micro, self.forward(micro, wanted, self.model.chunks - 1).out) for micro in together)

    def settle(self) -> None:
        """Waits until nothing is on its way from here."""
        if self.neighbours is not None:
            self.neighbours.settle()

    def autocast(self) -> AbstractContextManager[None]:
        if self.compute_dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.compute_dtype)

    def _hidden_shape(self, micro: MicroBatch) -> tuple[int, int, int]:
        rows, length = micro.tokens.shape
        align = getattr(self.model, "align", 1)
        padded = length + -length % align
        size = int(self.model.hf.config.get_text_config().hidden_size)
        return rows, padded // self.grid.size("cp"), size

    def _room(self, micro: MicroBatch) -> Tensor:
        dtype = torch.float64 if self.hidden_dtype is torch.float64 else torch.float32
        return torch.empty(len(micro.targets), dtype=dtype, device=self.device)


def _neighbours(grid: Grid) -> Neighbours | None:
    forward, back = grid.group("pp"), grid.group("pp_back")
    if forward is None or back is None:
        return None
    return Neighbours(Ways(forward, back, grid.group("pp_around"), grid.group("pp_around_back")))


def _total(flight: Flight, loss: Loss, tally: Tally) -> Tensor:
    """() the weighted loss of a micro-batch; zero, but reaching every parameter, of a dummy."""
    micro, out = flight.micro, flight.out
    if micro.dummy:
        return torch.stack([o.sum() for o in out.values()]).sum() * 0
    columns = micro.columns(next(iter(out.values())).dtype)
    weight = columns.pop(TOKEN_WEIGHT)[:, None]
    columns.update({name: micro.padded(flat) for name, flat in out.items()})
    result = loss(columns, micro.mask)
    total = torch.where(micro.mask, result.loss * weight, 0).sum()
    tally.add(total, result.metrics, micro.mask, len(micro.targets))
    return total
