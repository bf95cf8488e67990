"""`Trainer`: log-probabilities, values and updates of one model, data-parallel over a process group.

Each rank calls the same methods with its own share of the samples; methods marked collective must be called
on every rank of the group. Because token weights come from the whole minibatch, gradients are plain sums
over ranks and micro-batches, so that neither split changes an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rpeg.backends.models import Headed, Wanted
from rpeg.backends.samples import Array, Ints, Samples
from rpeg.backends.training import checkpoint, collectives
from rpeg.backends.training.adamw import AdamW
from rpeg.backends.training.collectives import Group
from rpeg.backends.training.microbatch import MicroBatch, build, dummy, split
from rpeg.backends.training.optimizer import OptimizerConfig, learning_rate
from rpeg.backends.training.parameters import Parameters, Replicated, Sharded
from rpeg.backends.training.tally import Loss, Tally
from rpeg.backends.weights import Published, canary_logprobs, manifest_of, publish
from rpeg.errors import RunError

Zero = Literal[0, 3]


@dataclass(frozen=True)
class Update:
    """What one optimizer step did. gradient_norm: before clipping. applied: whether that was finite."""

    gradient_norm: float
    learning_rate: float
    applied: bool


class Trainer:
    """One model's training and inference on this rank.

    zero: 0 keeps replicas and sums their gradients in one bucket; 3 shards parameters, gradients and
    moments (FSDP2).
    optimizer: None for a model that is only evaluated. logit_chunk: so many tokens' logits exist at a time.
    compute_dtype: of the matrix products, where it differs from the parameters' dtype (mixed precision).
    recompute: layers keep only their inputs and run again in the backward pass.
    reduce_every_microbatch: with zero=3, keep no unsharded gradients between micro-batches.

    updates: optimizer steps taken; the learning rate follows it. skipped: steps left out for a gradient
    that was not finite.
    """

    def __init__(
        self,
        model: Headed,
        *,
        group: Group = None,
        zero: Zero = 0,
        optimizer: OptimizerConfig | None = None,
        logit_chunk: int | None = None,
        compute_dtype: torch.dtype | None = None,
        recompute: bool = False,
        reduce_every_microbatch: bool = False,
    ) -> None:
        if zero not in (0, 3):
            raise ValueError(f"zero is {zero}: 0 (replicas) or 3 (sharded) are built")
        self.model, self.group, self.logit_chunk = model, group, logit_chunk
        self.device = next(model.parameters()).device
        self.manifest = manifest_of(model)
        self.sharded = zero == 3 and group is not None and collectives.size(group) > 1
        self.compute_dtype = None if self.sharded else compute_dtype
        self.updates = self.skipped = 0
        if recompute:
            model.recompute_layers()
        trainable = optimizer is not None
        if self.sharded and group is not None:
            self.parameters: Parameters = Sharded(
                model,
                group,
                trainable=trainable,
                compute_dtype=compute_dtype,
                reduce_every_microbatch=reduce_every_microbatch,
            )
        else:
            self.parameters = Replicated(model, group, trainable=trainable)
        self.optimizer = AdamW(optimizer, self.parameters.local) if optimizer is not None else None

    # Inference

    def logprobs(self, samples: Samples, *, temperature: float, microbatch: int) -> Array:
        """(Σ lengths,) log-probability of each response token as sampled. Collective when sharded."""
        wanted = Wanted(logprobs=True, temperature=temperature, logit_chunk=self.logit_chunk)
        return self._infer(samples, wanted, microbatch)["logprobs"]

    def values(self, samples: Samples, *, microbatch: int) -> Array:
        """(Σ lengths,) value of the state before each response token. Collective when sharded."""
        return self._infer(samples, Wanted(values=True), microbatch)["new_values"]

    def logprobs_and_values(
        self, samples: Samples, *, temperature: float, microbatch: int
    ) -> dict[str, Array]:
        """Both in one forward of a shared backbone: `logprobs` and `values`. Collective when sharded."""
        wanted = Wanted(logprobs=True, values=True, temperature=temperature, logit_chunk=self.logit_chunk)
        out = self._infer(samples, wanted, microbatch)
        return {"logprobs": out["logprobs"], "values": out["new_values"]}

    @torch.no_grad()
    def scores(self, samples: Samples, *, microbatch: int) -> Array:
        """(n,) the reward model's score of each sample, see `RewardModel`. Collective when sharded."""
        rows = split(samples, microbatch)
        parts: list[Tensor] = []
        count = self._agreed([len(rows)])[0] if self.sharded else len(rows)
        for position in range(count):
            micro = self.build_microbatch(samples, rows, position)
            found = self.score(micro)
            if not micro.dummy:
                parts.append(found)
        self.parameters.release()
        out = np.zeros(len(samples))
        if rows:
            out[np.concatenate(rows)] = torch.cat(parts).double().cpu().numpy()
        return out

    def score(self, micro: MicroBatch) -> Tensor:
        """(n,) scores of a micro-batch, with gradient. Collective when sharded."""
        with self._autocast():
            out: Tensor = self.model(micro.tokens, micro.ends)
        return out

    @torch.no_grad()
    def _infer(self, samples: Samples, wanted: Wanted, microbatch: int) -> dict[str, Array]:
        names = [name for name, on in (("logprobs", wanted.logprobs), ("new_values", wanted.values)) if on]
        rows = split(samples, microbatch)
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        count = self._agreed([len(rows)])[0] if self.sharded else len(rows)
        for position in range(count):
            micro = self.build_microbatch(samples, rows, position)
            out = self.forward(micro, wanted)
            for name in names if not micro.dummy else ():
                parts[name].append(out[name])
        self.parameters.release()
        return {name: self._in_order(samples, rows, parts[name]) for name in names}

    def _in_order(self, samples: Samples, rows: list[Ints], parts: list[Tensor]) -> Array:
        """Results of the micro-batches as a flat column in the order of the samples."""
        if not rows:
            double = self.parameters.local[0].dtype is torch.float64
            return np.zeros(0, dtype=np.float64 if double else np.float32)
        column = torch.cat(parts).cpu().numpy()
        places = np.arange(len(column))
        where = Samples(samples.ids, samples.lengths, {"place": places}).rows(np.concatenate(rows))
        out = np.empty_like(column)
        out[where.token["place"]] = column
        return out

    # Training

    def train(
        self,
        minibatches: Sequence[Samples],
        weights: Sequence[npt.NDArray[np.floating[Any]]],
        loss: Loss,
        *,
        temperature: float = 1.0,
        microbatch: int,
        entropy: bool = False,
        value_gradient_scale: float = 1.0,
    ) -> dict[str, float]:
        """One optimizer step for each minibatch. Collective.

        minibatches: this rank's rows of each one, possibly none; every rank gives as many. weights: (n,)
        for each minibatch, what each token of a row weighs in the loss of the whole minibatch. loss: called
        with all columns of a micro-batch, `logprobs`, `entropy` where asked for, and `new_values` where the
        model has a value head. value_gradient_scale: how strongly the values pull at the backbone.

        Returns, the same on every rank: `loss`, `grad_norm` and `lr` (means over the minibatches),
        `tokens`, `applied` and `skipped` steps, and every metric of the loss averaged over tokens, or the largest
        where its name ends in `_max`.
        """
        rows = [split(samples, microbatch) for samples in minibatches]
        counts = self._agreed([len(r) for r in rows])
        heads = self.model.heads
        wanted = Wanted(
            "lm" in heads, entropy, "value" in heads, temperature, self.logit_chunk, value_gradient_scale
        )
        tally, steps = Tally(), []
        for samples, weight, parts, count in zip(minibatches, weights, rows, counts, strict=True):
            self.parameters.zero_gradients()
            weighted = samples.with_columns(sample={TOKEN_WEIGHT: np.asarray(weight, dtype=np.float64)})
            for position in range(count):
                micro = self.build_microbatch(weighted, parts, position)
                self.forward_backward(micro, loss, wanted, tally, last=position == count - 1)
            steps.append(self.step())
        return self._summary(tally, steps)

    def forward_backward(
        self, micro: MicroBatch, loss: Loss, wanted: Wanted, tally: Tally, *, last: bool
    ) -> None:
        """Adds a micro-batch's gradient; collective when sharded. last: no further one before `step`."""
        self.parameters.before_backward(last)
        out = self.forward(micro, wanted)
        if micro.dummy:
            nothing = torch.stack([o.sum() for o in out.values()]).sum() * 0
            nothing.backward()  # type: ignore[no-untyped-call]
            return
        columns = micro.columns(next(iter(out.values())).dtype)
        weight = columns.pop(TOKEN_WEIGHT)[:, None]
        columns.update({name: micro.padded(flat) for name, flat in out.items()})
        result = loss(columns, micro.mask)
        total = torch.where(micro.mask, result.loss * weight, 0).sum()
        total.backward()  # type: ignore[no-untyped-call]
        tally.add(total, result.metrics, micro.mask, len(micro.targets))

    def step(self) -> Update:
        """Reduces the gradients, clips them by their global norm and updates the parameters. Collective.

        A gradient that is not finite changes nothing: neither parameters, moments nor the count of updates.
        """
        assert self.optimizer is not None, "this trainer has no optimizer"
        config = self.optimizer.config
        rate = learning_rate(config, self.updates)
        gradients = self.parameters.reduced_gradients()
        norm = float(self.parameters.squared_norm(gradients).sqrt())
        if not np.isfinite(norm):
            self.skipped += 1
            return Update(norm, rate, applied=False)
        if config.max_grad_norm is not None and norm > config.max_grad_norm:
            torch._foreach_mul_(gradients, config.max_grad_norm / norm)
        self.optimizer.step(gradients, lr=rate, update=self.updates)
        self.updates += 1
        return Update(norm, rate, applied=True)

    def _summary(self, tally: Tally, steps: list[Update]) -> dict[str, float]:
        loss, tokens, metrics = tally.reduce(self.group, self.device)
        applied = sum(step.applied for step in steps)
        count = max(1, len(steps))
        return {
            **metrics,
            "loss": loss / count,
            "grad_norm": sum(step.gradient_norm for step in steps) / count,
            "lr": sum(step.learning_rate for step in steps) / count,
            "tokens": tokens,
            "applied": applied,
            "skipped": len(steps) - applied,
        }

    # Pieces

    def build_microbatch(self, samples: Samples, rows: Sequence[Ints], position: int) -> MicroBatch:
        """Micro-batch number `position` of a split, a dummy where this rank has no more."""
        if position >= len(rows):
            return dummy(self.device)
        return build(samples.rows(rows[position]), self.device)

    def forward(self, micro: MicroBatch, wanted: Wanted) -> dict[str, Tensor]:
        """The model on a micro-batch, see `PolicyModel.forward`. Collective when sharded."""
        with self._autocast():
            out: dict[str, Tensor] = self.model(micro.tokens, micro.index, micro.targets, wanted)
        return out

    def _autocast(self) -> AbstractContextManager[None]:
        if self.compute_dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.compute_dtype)

    def _agreed(self, counts: list[int]) -> list[int]:
        """Micro-batches that each minibatch takes on this rank: sharded ranks run in step. Collective."""
        ranks = collectives.gather_json(counts, self.group, self.device)
        if len({len(r) for r in ranks}) > 1:
            raise RunError(f"ranks were given {[len(r) for r in ranks]} minibatches; give all as many")
        return [max(column) for column in zip(*ranks, strict=True)] if self.sharded else counts

    # Weights and state

    def publish(self, version: int) -> Published:
        """The full weights as version `version`, on every rank. Collective when sharded."""
        return publish(version, self.manifest, self.parameters.full(self.parameters.local))

    @torch.no_grad()
    def receive(self, published: Published) -> str:
        """Takes a version's weights in place; the digest of what is then held. Collective when sharded."""
        if not self.sharded:
            return published.load_into(self.model)
        self.parameters.scatter(published.tensors(), self.parameters.local)
        return self.publish(published.version).digest

    def canary(self, tokens: Ints) -> npt.NDArray[np.float64]:
        """`canary_logprobs` of this model. Collective when sharded."""
        out = canary_logprobs(self.model, tokens)
        self.parameters.release()
        return out

    def state(self, directory: str) -> None:
        """Writes parameters, moments and counts; loads onto any number of ranks. Collective."""
        checkpoint.save(self, directory)

    def load_state(self, directory: str) -> None:
        """Takes what `state` wrote. InputError where it is of another model. Collective when sharded."""
        checkpoint.load(self, directory)

    def save_model(self, directory: str) -> None:
        """Writes a Hugging Face directory from the first rank. Collective."""
        checkpoint.save_model(self, directory)

    def parameter_bytes(self) -> int:
        """Bytes of the parameters on this rank."""
        return sum(tensor.nbytes for tensor in self.parameters.local)

    def optimizer_bytes(self) -> int:
        """Bytes of the optimizer's moments on this rank."""
        return self.optimizer.state_bytes() if self.optimizer else 0


TOKEN_WEIGHT = "_token_weight"
"""The sample column that carries what each token of a row weighs; `forward_backward` takes it out."""
