"""`Job`: every key of a job file, with its type, its bounds, its default and what it means.

Descriptions are used in error messages; `rpeg init` writes a commented example. Rules that need several keys or
a look at the disk are in `rules`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from rpeg.algorithms.pieces import with_carry_over, with_evaluation
from rpeg.algorithms.rewarding import with_reward_model
from rpeg.cluster import Cluster
from rpeg.ir import Graph
from rpeg.job.adapters import LoRA
from rpeg.job.algorithm import AlgorithmSection
from rpeg.job.fields import (
    LARGEST,
    Count,
    CountOrNone,
    DType,
    Flag,
    NonNegative,
    Number,
    OptionalPathText,
    PathText,
    Positive,
    Seed,
    Share,
    Size,
    Staleness,
    Text,
)
from rpeg.job.hardware import ClusterChoice, described, is_local
from rpeg.job.models import ModelSource, resolve_model
from rpeg.job.optimizer import Optimizer
from rpeg.job.rewards import MODEL, Reward, Rewards, uses_model
from rpeg.job.section import Section
from rpeg.job.selection import Selection
from rpeg.job.software import Software
from rpeg.job.tools import Tools
from rpeg.job.wishes import Wishes

MOST_EVALUATION_SAMPLES = 1024


class ModelChoice(Section):
    """Where a model comes from."""

    path: PathText = Field(
        description="bundled:NAME, package:PACKAGE (a GGUF file inside an installed package), "
        "a directory (relative to the job file), a Hugging Face id org/name; to plan, also a known model's name"
    )


class Models(Section):
    """The models by role. Critic and reference start as the actor unless they are given."""

    actor: ModelChoice = Field(description="the model to train, such as {path: bundled:tiny}")
    critic: ModelChoice | None = Field(
        default=None, description="where the critic starts; default: as the actor"
    )
    reference: ModelChoice | None = Field(
        default=None, description="the frozen reference; default: the initial actor"
    )
    reward: ModelChoice | None = Field(
        default=None,
        description="the reward model: a sequence classifier of one label, or a model with a value head",
    )

    def of(self, role: str) -> ModelChoice:
        """The choice for a role: its own, or the actor's."""
        return getattr(self, role, None) or self.actor

    def source(self, role: str, *, planned: bool = False) -> ModelSource:
        """Where a role's files are. InputError when they cannot be found. planned: a known shape is enough."""
        return resolve_model(self.of(role).path, planned=planned)


class Data(Section):
    """Prompts, with the answers that the reward checks against: see `records` for what can be read."""

    train: OptionalPathText = Field(
        default="",
        description="prompts: a .jsonl or .parquet file or a saved dataset's directory (relative to the job file), "
        "bundled:PATH, hf:ORG/NAME#SPLIT or reasoning-gym:TASK",
    )
    heldout: PathText | None = Field(
        default=None, description="prompts that are never trained on, given likewise"
    )
    prompt: Text = Field(
        default="prompt", description="the field with the prompt: text or chat messages; dots lead inwards"
    )
    answer: Text = Field(default="answer", description="the field with the answer; dots lead inwards")
    system: Text | None = Field(
        default=None, description="a system message before each prompt; needs chat_template"
    )
    chat_template: Flag = Field(
        default=False, description="whether prompts go through the tokenizer's chat template"
    )
    shuffle: Flag = Field(
        default=True, description="whether each epoch has an order of its own, or all that of the file"
    )


class Batch(Section):
    """What one step trains on. samples = prompts × samples_per_prompt."""

    prompts: Size = Field(description="prompts a step; where groups are selected, of those that pass")
    samples_per_prompt: Size = Field(default=1, description="responses to each prompt")
    minibatches: Size = Field(
        default=1, description="optimizer updates an epoch; they share the samples equally"
    )
    epochs: Annotated[Count, Field(le=1024)] = Field(default=1, description="times each sample is trained on")
    microbatch: Size = Field(
        default=64, description="samples in one forward and backward pass on a device, at most"
    )

    @property
    def samples(self) -> int:
        """Samples a step."""
        return self.prompts * self.samples_per_prompt

    @property
    def minibatch_samples(self) -> int:
        """Samples a minibatch, over all devices."""
        return self.samples // self.minibatches


class ExpectedResponse(Section):
    """Response lengths to plan for, in tokens."""

    mean: Annotated[Positive, Field(le=LARGEST)] = Field(description="mean tokens of a response")
    p95: Annotated[Positive, Field(le=LARGEST)] = Field(
        description="tokens that 95 of 100 responses stay below"
    )


class ExpectedPrompt(Section):
    """Prompt lengths to plan for, in tokens."""

    mean: Annotated[Positive, Field(le=LARGEST)] = Field(description="mean tokens of a prompt")
    p95: Annotated[Positive, Field(le=LARGEST)] | None = Field(
        default=None, description="tokens that 95 of 100 prompts stay below; default: a usual spread"
    )


class Lengths(Section):
    """Lengths in tokens."""

    max_prompt: Size = Field(description="tokens of a prompt, at most; longer prompts are dropped")
    max_response: Size = Field(description="tokens of a response, at most; longer responses are cut")
    expected_response: ExpectedResponse | None = Field(
        default=None, description="mean and p95 tokens of a response, for planning"
    )
    expected_prompt: ExpectedPrompt | None = Field(
        default=None, description="mean and p95 tokens of a prompt, for planning without data"
    )
    correlation: Annotated[NonNegative, Field(le=1)] = Field(
        default=0.0, description="of the lengths of responses to one prompt, 0 to 1, for planning"
    )


class Sampling(Section):
    """How responses are drawn."""

    temperature: Positive = Field(default=1.0, description="divides the logits; training needs it above zero")
    top_p: Share = Field(default=1.0, description="share of probability kept; 1 keeps all")
    top_k: CountOrNone = Field(default=0, description="tokens kept; 0 keeps all")


class Allow(Section):
    """Permissions for changes that change what is learned."""

    staleness: Staleness = Field(
        default=0, description="versions that a trained token may be behind, at most"
    )
    actor_critic_sharing: Flag = Field(
        default=False, description="whether actor and critic may share a backbone"
    )
    behaviour_logprobs: Flag = Field(
        default=False,
        description="whether log-probabilities noted during generation may stand in for the actor's own",
    )
    keep_kv: Flag = Field(
        default=False,
        description="whether responses may go on under new weights with keys and values of the old ones",
    )


class Evaluation(Section):
    """Rewards on held-out prompts, by verifiers."""

    every: CountOrNone = Field(default=0, description="steps between evaluations; 0: never")
    prompts: Size = Field(default=128, description="held-out prompts in an evaluation")
    samples: Annotated[Count, Field(le=MOST_EVALUATION_SAMPLES)] = Field(
        default=1, description="responses to each prompt; from 2 on also pass@k, at a temperature above 0"
    )
    temperature: NonNegative = Field(default=0.0, description="of the responses; 0: greedy")
    solved: Number = Field(
        default=1.0, description="a response solves its prompt with a first reward of so much"
    )
    reward: Rewards | None = Field(
        default=None, description="how to score; default: the verifiers among the job's rewards"
    )


class Reading(Section):
    """Samples that are kept for people to read."""

    every: CountOrNone = Field(default=10, description="steps between those whose samples are kept; 0: never")
    count: Size = Field(default=8, description="samples kept of such a step")


class Checkpoint(Section):
    """What is kept to resume from."""

    every: CountOrNone = Field(default=0, description="steps between checkpoints; 0: only the last")
    keep: Count = Field(default=2, description="checkpoints kept; older ones are removed")


class Job(Section):
    """One training job. After `load_job` every path in it is absolute (or bundled:, package:, a Hugging Face id)."""

    name: Text = Field(description="a name for the run")
    algorithm: AlgorithmSection = Field(description="name: ppo, grpo, rloo, dapo …, and its hyperparameters")
    models: Models = Field(description="actor, and where they differ critic and reference")
    lora: LoRA | None = Field(
        default=None, description="adapters that are trained instead of whole models: rank, alpha, targets"
    )
    dtype: DType = Field("float32", description="number format of parameters and activations")
    data: Data = Field(description="train: a JSONL file of prompts and answers")
    reward: Rewards = Field(
        description="name: exact, numeric, … or python:package.module:function; or a list of such, with weights"
    )
    batch: Batch = Field(description="prompts, samples_per_prompt, minibatches")
    selection: Selection = Field(
        default_factory=Selection, description="dynamic sampling, where the algorithm selects groups"
    )
    tools: Tools | None = Field(
        default=None, description="a function that responses may call, which then have several turns"
    )
    lengths: Lengths = Field(description="max_prompt and max_response, in tokens")
    sampling: Sampling = Field(default_factory=Sampling, description="temperature, top_p, top_k")
    optimizer: Optimizer = Field(description="lr, and more")
    cluster: ClusterChoice
    software: Software = Field(default_factory=Software, description="engine and trainer, for planning")
    prices: dict[Text, NonNegative] = Field(
        default_factory=dict, description="of a device-hour, by kind or system, such as {h100: 2.5}"
    )
    allow: Allow = Field(default_factory=Allow, description="permissions")
    plan: Wishes = Field(default_factory=Wishes, description="wishes for the plan")
    steps: Count = Field(description="training steps")
    seed: Seed = Field(default=0, description="fixes every draw")
    evaluation: Evaluation = Field(default_factory=Evaluation, description="held-out accuracy")
    checkpoint: Checkpoint = Field(default_factory=Checkpoint, description="what is kept")
    samples: Reading = Field(default_factory=Reading, description="samples to read with `rpeg samples`")
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = Field(
        default=(), description="where metrics go beside the console and metrics.jsonl"
    )
    output: PathText = Field(description="the run's directory (relative to where rpeg is started)")

    @property
    def is_local(self) -> bool:
        """Whether its devices are processes of this machine; else it can be planned, not run here."""
        return is_local(self.cluster)

    @cached_property
    def hardware(self) -> Cluster:
        """The described cluster to plan for. InputError where it is unknown."""
        return described(self.cluster, self.prices)

    def graph(self) -> Graph:
        """One step of the algorithm, with the reward model and the evaluation that the job asks for."""
        graph: Graph = self.algorithm.graph()
        if uses_model(self.reward):
            graph = with_reward_model(graph)
        if self.keeps_leftovers:
            graph = with_carry_over(graph)
        return with_evaluation(graph, self.evaluation.every) if self.evaluation.every else graph

    @property
    def selects(self) -> bool:
        """Whether groups are selected, and further ones generated until there are enough."""
        return bool(getattr(self.algorithm.hyper, "dynamic_sampling", False))

    @property
    def keeps_leftovers(self) -> bool:
        """Whether accepted groups beyond a step's quota are trained at the next one."""
        return self.selects and self.selection.leftover == "keep"

    @property
    def evaluation_reward(self) -> tuple[Reward, ...]:
        """How held-out responses are scored: without a reward model, which only training runs."""
        chosen = self.evaluation.reward or self.reward
        return tuple(reward for reward in chosen if reward.name != MODEL)

    @property
    def devices(self) -> int:
        """Devices of all kinds."""
        if isinstance(self.cluster, dict) and self.is_local:
            return sum(self.cluster.values())
        return len(self.hardware)
