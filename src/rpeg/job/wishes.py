"""What a job wants its plan to look like: staleness, sharing, and layouts of stages as people have them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PlainValidator

from rpeg.job.fields import Count, Flag, Size, Staleness, Text, whole
from rpeg.job.problems import show
from rpeg.job.section import Section
from rpeg.plan.assignment import ranges

MOST_DEVICES = 2**20
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


def parse(value: object) -> int | tuple[int, ...]:
    """A count, or device numbers: a list of them, or text such as ``0-31`` or ``0-3,8``."""
    if isinstance(value, list | tuple):
        return tuple(_number(one) for one in value)
    if not isinstance(value, str) or value.strip().isdigit():
        count = _number(value)
        if count < 1:
            raise ValueError(f"is {show(value)}, must be at least 1 device.")
        return count
    return tuple(number for part in value.split(",") for number in _range(part.strip(), value))


def written(devices: int | tuple[int, ...]) -> int | str | list[int]:
    """As `parse` reads it."""
    if isinstance(devices, int):
        return devices
    return ranges(devices) if len(devices) > 1 else list(devices)  # text of one number would be a count


def _number(value: object) -> int:
    number = whole(value)
    assert isinstance(number, int)
    if not 0 <= number < MOST_DEVICES:
        raise ValueError(f"is {show(value)}, must be a number of devices, or of a device.")
    return number


def _range(part: str, value: str) -> range:
    found = _RANGE.fullmatch(part)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first or last >= MOST_DEVICES:
        raise ValueError(
            f"is {show(value)}, must be a count such as 32, or device numbers such as 0-31 or [0, 1, 2, 3]."
        )
    return range(first, last + 1)


Degree = Annotated[Count, Field(le=MOST_DEVICES)]
DevicesOf = Annotated[
    int | tuple[int, ...], PlainValidator(parse), PlainSerializer(written, return_type=int | str | list[int])
]


class StageLayout(Section):
    """How one stage is to run. What is left out is chosen."""

    devices: DevicesOf | None = Field(
        default=None,
        description="their numbers, 0-31; or how many: the first of the cluster for generation, else the last",
    )
    tp: Degree | None = Field(default=None, description="degree of tensor parallelism")
    pp: Degree | None = Field(default=None, description="pipeline stages")
    vpp: Degree | None = Field(
        default=None, description="chunks of layers that each pipeline stage holds, interleaved"
    )
    dp: Degree | None = Field(default=None, description="data-parallel replicas")
    cp: Degree | None = Field(default=None, description="degree of context parallelism")
    ep: Degree | None = Field(default=None, description="degree of expert parallelism")
    zero: Literal[0, 1, 2, 3] | None = Field(
        default=None, description="what data-parallel ranks shard: 1 optimizer, 2 gradients too, 3 all (FSDP)"
    )
    microbatch: Size | None = Field(
        default=None,
        description="samples in one forward; of generation the responses that a replica holds at once",
    )
    backend: Literal["torch", "vllm"] | None = Field(
        default=None,
        description="what generates where the job runs: torch, over the model that other stages use, or vllm",
    )
    recompute: Literal["none", "selective", "full"] | None = Field(
        default=None, description="activations computed again in the backward pass"
    )
    offload: Literal["none", "optimizer", "all"] | None = Field(
        default=None,
        description="what rests in host memory between runs; all of generation: the engine sleeps",
    )

    @property
    def given(self) -> tuple[str, ...]:
        """The keys that are said."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) is not None)

    @property
    def cuts(self) -> bool:
        """Whether anything is said of how the model is cut."""
        return not {"tp", "pp", "vpp", "dp", "cp", "ep", "zero"}.isdisjoint(self.given)


class Wishes(Section):
    """What the plan must look like; whatever is left out is searched."""

    staleness: Staleness | None = Field(default=None, description="exactly this staleness")
    freshness: Literal["exact", "latest"] | None = Field(
        default=None,
        description="exact: always the same version, replayable; latest: the newest within the bound",
    )
    on_new_weights: Literal["drain", "reprefill", "keep_kv"] = Field(
        default="drain",
        description="drain: a response is of one version; reprefill, keep_kv: free slots begin on the next step, whose "
        "responses go on under new weights, with keys and values computed anew or with the old ones",
    )
    actor_critic_sharing: Flag = Field(
        default=False, description="true: actor and critic are one model with two heads, with one optimizer"
    )
    layouts: dict[Text, StageLayout] = Field(
        default_factory=dict, description="how stages run, such as {generate: {devices: 0-31, tp: 8}}"
    )
    colocate: tuple[Text, ...] = Field(default=(), description="stages that run on the same devices")
