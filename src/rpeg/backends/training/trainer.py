"""`Trainer`: log-probabilities, values and updates of one model, data-parallel over a process group.

Each rank calls the same methods with its own share of the samples; methods marked collective must be called
on every rank of the group. Because token weights come from the whole minibatch, gradients are plain sums
over ranks and micro-batches, so that neither split changes an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rpeg.backends.adapters import switched_off
from rpeg.backends.boxes import Piece
from rpeg.backends.checksum import digest
from rpeg.backends.headed import Headed, named_parameters
from rpeg.backends.models import Wanted
from rpeg.backends.samples import Array, Ints, Samples
from rpeg.backends.training import checkpoint
from rpeg.backends.training.adamw import AdamW
from rpeg.backends.training.batching import Batching, in_order
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.microbatch import MicroBatch
from rpeg.backends.training.optimizer import OptimizerConfig, learning_rate
from rpeg.backends.training.parallel.attention import recompute_attention
from rpeg.backends.training.parallel.model import cut
from rpeg.backends.training.parameters import Partitioned, parameters_of
from rpeg.backends.training.parameters.digest import replica_checksum
from rpeg.backends.training.passes import TOKEN_WEIGHT, Passes
from rpeg.backends.training.resting import HostCopies
from rpeg.backends.training.tally import Loss, Tally
from rpeg.backends.training.update import Update, summary
from rpeg.backends.weights import Published, aliases_of, load, publish

ALONE = Grid()
State = Literal["weights", "optimizer"]
Recompute = Literal["none", "selective", "full"]


class Trainer:
    """One model's training and inference on this rank.

    grid: this rank's place among those that share the model; by its parallelism the model is cut in place, and replicas
    of what is left are kept whole (zero 0), with shares of the moments (1), of the gradients too (2), or sharded (3).
    optimizer: None for a model that is only evaluated. logit_chunk: so many tokens' logits exist at a time.
    tokens_per_sample: see `Batching`; reward models and cut contexts are padded whatever it says.
    compute_dtype: of the matrix products, where it differs from the parameters' dtype (mixed precision).
    recompute: full: layers keep only their inputs and run again in the backward pass; selective: attention alone does.
    reduce_every_microbatch: with zero 3, keep no unsharded gradients between micro-batches.
    device: to be moved to once it is cut. constant: its weights never change.

    updates: optimizer steps taken; the learning rate follows it. skipped: steps left out for a gradient
    that was not finite.
    """

    def __init__(
        self,
        model: Headed,
        *,
        grid: Grid = ALONE,
        optimizer: OptimizerConfig | None = None,
        logit_chunk: int | None = None,
        tokens_per_sample: int | None = None,
        compute_dtype: torch.dtype | None = None,
        recompute: Recompute = "none",
        reduce_every_microbatch: bool = False,
        device: torch.device | None = None,
        constant: bool = False,
    ) -> None:
        self.model, self.grid, self.logit_chunk = model, grid, logit_chunk
        self.aliases, self.names = aliases_of(model), frozenset(name for name, _ in named_parameters(model))
        self.layout = layout = cut(model, grid)
        self._frozen: int | None = None
        model.to(device)
        self.device = next(model.parameters()).device
        self.updates = self.skipped = 0
        self.padding = Batching(grid, self.device)
        # Exchanged heads see no mask, which packed samples need.
        packs = tokens_per_sample is not None and grid.size("cp") == 1
        self.batching = Batching(grid, self.device, tokens_per_sample) if packs else self.padding
        if recompute == "full":
            model.recompute_layers()
        elif recompute == "selective":
            recompute_attention(model.hf)
        trainable, hidden = optimizer is not None, next(model.parameters()).dtype
        self.sharded = grid.parallelism.zero == 3 and grid.size("shard") > 1
        self.parameters = parameters_of(
            model, grid, layout, trainable, compute_dtype, reduce_every_microbatch=reduce_every_microbatch
        )
        self.passes = Passes(
            model,
            self.parameters,
            grid,
            compute_dtype=None if self.sharded else compute_dtype,
            hidden_dtype=(compute_dtype or hidden) if self.sharded else hidden,
        )
        self.optimizer = AdamW(optimizer, self.parameters.local) if optimizer is not None else None
        moments = self.optimizer.moments.values() if self.optimizer is not None else ()
        self._host: dict[State, HostCopies] = {
            "weights": HostCopies(self.parameters.storage(), constant=constant),
            "optimizer": HostCopies((m for kind in moments for m in kind), self.parameters.scratch()),
        }

    @property
    def meets_forward(self) -> bool:
        """Whether ranks with different samples meet in a forward pass, and so must make as many."""
        return self.sharded or self.grid.size("ep") > 1

    @property
    def meets_backward(self) -> bool:
        """Whether they meet in a backward pass."""
        reduces = isinstance(self.parameters, Partitioned) and not self.parameters.keep_whole
        return self.meets_forward or reduces

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
        rows = self.padding.split(samples, microbatch)
        micros = self.padding.all(samples, rows, meets=self.meets_forward)
        parts = [self.score(micro) for micro in micros]
        self.parameters.release()
        out = np.zeros(len(samples))
        if rows:
            out[np.concatenate(rows)] = torch.cat(parts[: len(rows)]).double().cpu().numpy()
        return out

    def score(self, micro: MicroBatch) -> Tensor:
        """(n,) scores of a micro-batch, with gradient. Collective when sharded."""
        with self.passes.autocast():
            out: Tensor = self.model(micro.tokens, micro.ends)
        return out

    @torch.no_grad()
    def _infer(self, samples: Samples, wanted: Wanted, microbatch: int) -> dict[str, Array]:
        names = [name for name, on in (("logprobs", wanted.logprobs), ("new_values", wanted.values)) if on]
        rows = self.batching.split(samples, microbatch)
        micros = self.batching.all(samples, rows, meets=self.meets_forward)
        parts = self.passes.infer(micros, wanted, names)
        double = self.parameters.local[0].dtype is torch.float64
        dtype = np.float64 if double else np.float32
        return {name: in_order(samples, rows, parts[name], dtype) for name in names}

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
        rows = [self.batching.split(samples, microbatch) for samples in minibatches]
        counts = self.batching.counts([len(r) for r in rows], meets=self.meets_backward)
        heads = self.model.heads
        wanted = Wanted(
            "lm" in heads, entropy, "value" in heads, temperature, self.logit_chunk, value_gradient_scale
        )
        tally, steps = Tally(), []
        for samples, weight, parts, count in zip(minibatches, weights, rows, counts, strict=True):
            self.parameters.zero_gradients()
            weighted = samples.with_columns(sample={TOKEN_WEIGHT: np.asarray(weight, dtype=np.float64)})
            micros = [self.batching.one(weighted, parts, position) for position in range(count)]
            self.passes.train(micros, loss, wanted, tally)
            steps.append(self.step())
        return summary(tally, steps, self.grid, self.device)

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
        self.parameters.updated()
        self.updates += 1
        return Update(norm, rate, applied=True)

    # Weights and state

    def changing(self) -> list[Piece]:
        """What this rank holds of the parameters that training changes: of all, or of adapters and a value head."""
        return [piece for piece in self.parameters.weights() if piece.name not in self.model.frozen]

    def digest(self) -> str:
        """Of all that the ranks hold together of one replica of the model. Collective over these."""
        changing = replica_checksum(
            self.changing(), self.layout, self.grid, self.device, sharded=self.sharded
        )
        if self._frozen is None:
            frozen = [piece for piece in self.parameters.weights() if piece.name in self.model.frozen]
            self._frozen = replica_checksum(frozen, self.layout, self.grid, self.device, sharded=self.sharded)
        return digest(changing + self._frozen)

    def publish(self, version: int) -> Published:
        """This rank's contribution to version `version`: what training changes. Collective."""
        return publish(version, self.changing(), self.digest(), self.aliases)

    @torch.no_grad()
    def receive(self, contributions: Iterable[Published]) -> str:
        """Takes a version's weights in place, one contribution at a time; the digest of what is then held. Collective
        where the model is cut."""
        load(self.changing(), contributions, self.names - self.model.frozen)
        return self.digest()

    @contextmanager
    def without_adapters(self) -> Iterator[Trainer]:
        """Itself, computing what the model did before it had adapters."""
        with switched_off(self.model):
            yield self

    def canary(self, tokens: Ints) -> npt.NDArray[np.float64]:
        """`canary_logprobs` of this model. Collective where it is cut."""
        one = np.ones(1, dtype=np.int64)
        prompt, response = tokens[:1], tokens[1:]
        samples = Samples(one, one * len(response), prompts=prompt, prompt_lengths=one, responses=response)
        wanted = Wanted(logprobs="lm" in self.model.heads, values="value" in self.model.heads)
        return np.concatenate(list(self._infer(samples, wanted, 1).values())).astype(np.float64)

    def offload(self, state: State) -> int:
        """Gives back the device's memory of the weights, or of the optimizer's moments and the gradients; bytes that went
        to the host."""
        if state == "optimizer" and not self.is_resting(state):
            self.parameters.zero_gradients()
        return self._host[state].offload()

    def reload(self, state: State) -> int:
        """Brings back what `offload` has taken; bytes that came from the host."""
        return self._host[state].reload()

    def is_resting(self, state: State) -> bool:
        """Whether it is on the host, where nothing can be computed with it."""
        return self._host[state].resting

    def state(self, directory: str) -> None:
        """Writes parameters, moments and counts; loads onto any number of ranks. Collective."""
        checkpoint.save(self, directory)

    def snapshot(self, *, optimizer: bool = True) -> checkpoint.Snapshot:
        """What `state` writes, copied to the host; without `optimizer` the weights alone. Collective."""
        return checkpoint.snapshot(self, optimizer=optimizer)

    def load_weights(self, directory: Path) -> None:
        """Takes the weights alone of what a snapshot wrote. Collective when sharded."""
        checkpoint.load_weights(self, directory)

    def load_state(self, directory: str) -> None:
        """Takes what `state` wrote. InputError where it is of another model. Collective when sharded."""
        checkpoint.load(self, directory)

    def save_model(self, directory: str) -> None:
        """Writes a Hugging Face directory from the first rank. Collective."""
        checkpoint.save_model(self, directory)

    def parameter_bytes(self) -> int:
        """Bytes of the parameters on this rank."""
        return sum(piece.tensor.nbytes for piece in self.parameters.weights())

    def optimizer_bytes(self) -> int:
        """Bytes of the optimizer's moments on this rank."""
        return self.optimizer.state_bytes() if self.optimizer else 0
