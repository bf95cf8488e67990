"""The models that one worker holds: trainers, copies fed by transfers, and frozen ones.

Which stages share memory is decided by the plan's lowering, and only carried out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import cast

import torch

from rpeg import cost
from rpeg.backends.adapters import Adapters, adapt, whole_parameters
from rpeg.backends.generation import make_engine
from rpeg.backends.generation.protocol import GenerationEngine, Setup
from rpeg.backends.headed import Headed
from rpeg.backends.models import load_model
from rpeg.backends.reward_model import load_reward_model
from rpeg.backends.training.grid import Grid, Groups, make_grid
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.trainer import ALONE, Recompute, State, Trainer
from rpeg.backends.weights import canary_tokens, check_canary
from rpeg.ir import Kind, OnNewWeights, Stage
from rpeg.plan import Assignment, Copy, Devices, Lowered, Parallelism, Rest
from rpeg.runtime.optimizing import optimizer_config
from rpeg.runtime.work import Station
from rpeg.sim.bases import base_of, bases

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass
class Holding:
    """A model in this process. version, digest: of the weights that it has now.

    awake_for: of each state that may rest on the host, the rests that have it on the device now.
    base: it is what the trainer's model was before it had adapters.
    """

    model: str
    trainer: Trainer
    version: int
    digest: str = ""
    awake_for: dict[State, set[str]] = field(default_factory=dict)
    base: bool = False

    def computing(self) -> AbstractContextManager[Trainer]:
        """The trainer, which computes what this model does as long as the context lasts."""
        return self.trainer.without_adapters() if self.base else nullcontext(self.trainer)


class Holdings:
    """What `station` holds for its plan.

    Construction is collective over all device workers: process groups are made in the same order everywhere.
    """

    def __init__(self, station: Station, lowered: Lowered) -> None:
        self.station, self.plan, self.job, self.lowered = station, station.plan, station.job, lowered
        self.device = torch.device(station.device)
        self._grids = dict(self._make_grids())
        self._trained: dict[str, Holding] = {}
        self._copies: dict[str, Holding] = {}
        self._frozen: dict[tuple[object, ...], Holding] = {}
        self._by_stage: dict[tuple[str, str], Holding] = {}
        self._engines: dict[str, GenerationEngine] = {}
        for stage in self._mine(Kind.TRAIN):
            for name in stage.models:
                self._trained[name] = self._load(
                    name, self.plan.assignment(stage.name), self._optimizer(name)
                )
        for stage in self._mine(Kind.GENERATE, Kind.INFERENCE):
            for name in stage.models:
                self._by_stage[stage.name, name] = self._held_for(stage, name)

    @property
    def trained(self) -> dict[str, Holding]:
        """By model, those that this worker trains."""
        return self._trained

    @property
    def copies(self) -> dict[str, Holding]:
        """By transfer name, those that receive weights."""
        return self._copies

    def for_stage(self, stage: str, model: str) -> Holding:
        """What a stage reads a model from."""
        return self._by_stage.get((stage, model)) or self._trained[model]

    def engine(self, stage: str) -> GenerationEngine:
        """The generation engine of a stage, with the weights that the stage reads: over the very module, or with a copy
        of them, which stages that read the same share."""
        if stage not in self._engines:
            holding, name = self._generates_with(stage), self.plan.assignment(stage).backend
            alike = [s for s in self._generating(holding) if self.plan.assignment(s).backend == name]
            shared = [self._engines[s] for s in alike if s in self._engines and name != "torch"]
            self._engines[stage] = shared[0] if shared else self._make_engine(stage, holding, alike)
        return self._engines[stage]

    def versions_at_start(self, model: str) -> list[int]:
        """Of a model that is trained here, those that a run's begin needs, oldest first: older than the last one are
        those that exact edges read."""
        first = self.station.first_step
        oldest = min(
            (c.version_before(first) for c in self.lowered.copies if c.model == model), default=first
        )
        return list(range(oldest, first + 1))

    def take_version(self, holding: Holding, version: int) -> None:
        """Brings a trainer to a version that the run begins with, in ascending order: 0 is what it was made with, others
        are in the checkpoint, the last one with the optimizer's state."""
        holding.version, checkpoint = version, self.station.checkpoint
        if checkpoint is not None and version == self.station.first_step:
            holding.trainer.load_state(str(checkpoint / holding.model))
        elif checkpoint is not None and version > 0:
            holding.trainer.load_weights(checkpoint / f"{holding.model}@{version}")

    def _make_engine(self, stage: str, holding: Holding, alike: list[str]) -> GenerationEngine:
        policy, lengths, sampling = holding.trainer.model, self.job.lengths, self.job.sampling
        name, pad = self.plan.assignment(stage).backend, policy.hf.config.pad_token_id
        setup = Setup(
            policy.hf,
            self.station.models[holding.model],
            slots=max(self.plan.assignment(s).microbatch for s in (alike if name != "torch" else [stage])),
            max_length=lengths.max_prompt + lengths.max_response,
            device=self.device,
            version=holding.version,
            pad_token_id=pad if isinstance(pad, int) else 0,
            truncates=sampling.top_p < 1 or sampling.top_k > 0,
            dtype=DTYPES[self.job.dtype],
        )
        engine = make_engine(name, setup)
        self._check(engine, holding)
        return engine

    def refresh(self, holding: Holding) -> None:
        """After new weights: engines take them and forget what they computed with older ones, but for those whose
        responses go on with it. RunError where an engine then gives other log-probabilities than the holding."""
        keeping = [self._engines.get(stage) for stage in self._generating(holding) if self._keeps(stage)]
        for engine in self._engines_over(holding):
            if engine not in keeping:
                engine.drop_caches()
            if not holding.trainer.is_resting("weights"):
                module = holding.trainer.model.hf
                if getattr(engine, "module", None) is not module:  # else it has them
                    engine.load_weights(whole_parameters(module), holding.version)
                self._check(engine, holding)

    def _check(self, engine: GenerationEngine, holding: Holding) -> None:
        """The canary of an engine. Stages and shards have no log-probabilities of their own. Collective over tp."""
        grid = holding.trainer.grid
        if (
            grid.parallelism.devices_per_replica > grid.size("tp")
            or grid.size("ep") > 1
            or holding.trainer.sharded
        ):
            return
        longest = self.job.lengths.max_prompt + self.job.lengths.max_response  # an engine holds no more
        tokens = canary_tokens(holding.trainer.model.vocab_size)[:longest]
        expected = holding.trainer.canary(tokens)[: len(tokens) - 1]  # values of a second head come after
        check_canary(expected, engine.score(tokens), DTYPES[self.job.dtype])

    def _generates_with(self, stage: str) -> Holding:
        return self.for_stage(stage, self.plan.graph.stage(stage).models[0])

    def _keeps(self, stage: str) -> bool:
        """Whether its responses go on under new weights with the keys and values that they have."""
        return any(e.on_new_weights is OnNewWeights.KEEP_KV for e in self.plan.graph.weights_into(stage))

    def _generating(self, holding: Holding) -> list[str]:
        """Stages that generate with a holding."""
        return [s.name for s in self._mine(Kind.GENERATE) if self._generates_with(s.name) is holding]

    def _engines_over(self, holding: Holding) -> list[GenerationEngine]:
        """Each once."""
        engines = {id(e): e for s in self._generating(holding) if (e := self._engines.get(s)) is not None}
        return list(engines.values())

    def offload(self, rest: Rest) -> None:
        """Puts to rest on the host what the stage of a rest holds here."""
        for holding in self._resting(rest):
            for state in self._states(rest, holding):
                users = holding.awake_for.setdefault(state, set())
                users.discard(rest.name)
                if not users:
                    holding.trainer.offload(state)
            whole = holding.trainer.is_resting("weights")
            own = self._engines.get(rest.stage)
            for engine in self._engines_over(holding) if whole else [own] if own is not None else []:
                engine.sleep()

    def reload(self, rest: Rest) -> None:
        """Brings it back."""
        generates = self.plan.graph.stage(rest.stage).kind is Kind.GENERATE
        for holding in self._resting(rest):
            states = self._states(rest, holding)
            for state in states:
                holding.awake_for.setdefault(state, set()).add(rest.name)
                holding.trainer.reload(state)
            if "weights" in states or generates:
                self.refresh(holding)

    def _states(self, rest: Rest, holding: Holding) -> tuple[State, ...]:
        """What a rest takes of a holding: an optimizer alone, or weights, with an optimizer where they are a trainer's.

        Nothing where somebody else finds the weights here and has no rest: an engine then gives back its cache alone.
        """
        if rest.what == "optimizer":
            return ("optimizer",)
        covered = {name for r in self.lowered.rests if r.what == "model" for name in r.stages}
        if not self._users(holding) <= covered:
            return ()
        trains = self.plan.graph.stage(rest.stage).kind is Kind.TRAIN
        return ("weights", "optimizer") if trains else ("weights",)

    def _users(self, holding: Holding) -> set[str]:
        """The stages that find these weights here."""
        stages = self._mine(Kind.TRAIN, Kind.GENERATE, Kind.INFERENCE)
        return {
            s.name
            for s in stages
            if any(self.for_stage(s.name, model).trainer is holding.trainer for model in s.models)
        }

    def _resting(self, rest: Rest) -> list[Holding]:
        """What the stage of a rest finds its models in on this worker, its own or another's."""
        stage = self.plan.graph.stage(rest.stage)
        if self.station.lane not in self.plan.assignment(stage.name).all_lanes():
            return []
        return [self.for_stage(stage.name, model) for model in stage.models]

    def _mine(self, *kinds: Kind) -> Iterator[Stage]:
        for stage in self.plan.graph.stages:
            if stage.kind in kinds and self.station.lane in self.plan.assignment(stage.name).all_lanes():
                yield stage

    def _make_grids(self) -> Iterator[tuple[tuple[Devices, Parallelism], Grid]]:
        """One for each layout of several devices; every rank makes the groups of all, members or not."""
        ranks = {lane: rank for rank, lane in enumerate(self.station.lanes_by_rank)}
        made: Groups = {}
        for a in sorted(self.plan.assignments, key=lambda assignment: assignment.stage):
            if isinstance(a.block, Devices) and len(a.block.ids) > 1:
                grid = make_grid(a.parallelism, [ranks[lane] for lane in a.all_lanes()], made)
                if grid is not None:
                    yield (a.block, a.parallelism), grid

    def _held_for(self, stage: Stage, model: str) -> Holding:
        copy = self.lowered.copy_for(stage.name, model)
        if copy is not None:
            return self._copy(copy, stage, model)
        if self.plan.graph.trainer(model) is not None:
            return self._trained[model]
        assignment = self.plan.assignment(stage.name)
        key = (model, assignment.block, assignment.parallelism.layout)
        if key not in self._frozen:
            trained = base_of(self.plan, bases(self.job, self.plan.graph), stage, model)
            if trained is None:
                self._frozen[key] = self._load(model, assignment, None)
            else:
                trainer = self._trained[trained].trainer
                self._frozen[key] = Holding(model, trainer, self.station.first_step, base=True)
        return self._frozen[key]

    def _copy(self, copy: Copy, stage: Stage, model: str) -> Holding:
        if copy.name not in self._copies:
            self._copies[copy.name] = self._load(model, self.plan.assignment(stage.name), None)
        return self._copies[copy.name]

    def _load(self, model: str, assignment: Assignment, optimizer: OptimizerConfig | None) -> Holding:
        block = assignment.block
        assert isinstance(block, Devices)
        grid = self._grids.get((block, assignment.parallelism), ALONE)
        constant = self.plan.graph.trainer(model) is None
        # On accelerators as their predictions have it, with chunked logits; a processor is calibrated with padded ones.
        packs = self.device.type != "cpu"
        module = self._load_module(model, torch.device("cpu") if grid.cuts else self.device)
        if (lora := self.job.lora) is not None and not constant:
            adapt(module, Adapters(lora.rank, lora.scale, lora.targets), self.job.seed)
        trainer = Trainer(
            module,
            grid=grid,
            optimizer=optimizer,
            logit_chunk=cost.stack(self.job.software.trainer).memory.chunk_tokens if packs else None,
            tokens_per_sample=self.plan.workload.mean_tokens if packs else None,
            recompute=cast(Recompute, assignment.recompute),
            device=self.device,
            constant=constant,
        )
        return Holding(model, trainer, self.station.first_step)

    def _load_module(self, model: str, device: torch.device) -> Headed:
        heads, directory = self.plan.graph.model(model).heads, self.station.models[model]
        dtype = DTYPES[self.job.dtype]
        if heads == ("reward",):
            return load_reward_model(directory, dtype=dtype, device=device)
        return load_model(directory, heads=heads, dtype=dtype, device=device, seed=self.job.seed)

    def _optimizer(self, model: str) -> OptimizerConfig:
        return optimizer_config(self.job, self.plan, model)
