"""The worker: one process for a device or a host slot, running one item at a time.

It decides nothing. The driver says what to run and when; the worker runs it, writes a span, and answers with what
became of it. Between two processes travel references to batches, not the batches.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from rpeg.backends.samples import Samples
from rpeg.plan import ItemKind, lower
from rpeg.runtime import weights
from rpeg.runtime.device_stages import DeviceStages
from rpeg.runtime.heartbeat import Heart
from rpeg.runtime.holdings import DTYPES, Holding, Holdings
from rpeg.runtime.host_stages import HostStages
from rpeg.runtime.inputs import Inputs
from rpeg.runtime.materials import Materials
from rpeg.runtime.network import interface_of
from rpeg.runtime.notes import Notes
from rpeg.runtime.selecting import Selector
from rpeg.runtime.work import Answer, Done, Station, Work, bundle, pack
from rpeg.trace import JsonLines, Span, span_file


class Worker:
    """Runs the items of one lane."""

    def __init__(self, station: Station) -> None:
        self.station, self.plan, self.job = station, station.plan, station.job
        beats = station.heartbeat_seconds
        self._heart = Heart(station.trace, station.lane, beats) if beats is not None else None
        with self._telling("starting"):
            self.lowered = lower(self.plan.graph, self.plan.assignments, self.plan.workload)
            self.materials = Materials(self.job)
            self.selector = Selector(self.plan.graph, self.job, self.plan.workload, station.trace.parent)
            self._spans = JsonLines(span_file(station.trace, station.name))
            self._stages: HostStages | DeviceStages
            if station.is_host:
                self._stages = HostStages(station, self.materials, self.selector)
            _settle(station)

    def meeting_point(self) -> str:
        """Where the device workers find each other: a file on one machine, else a free port of this one's node."""
        if self.station.address.startswith("127."):
            return (
                f"file://{self.station.trace}/rendezvous"  # a store over TCP would listen on every interface
            )
        with socket.socket() as probe:
            probe.bind((self.station.address, 0))
            return f"tcp://{self.station.address}:{probe.getsockname()[1]}"

    def prepare(self, meeting_point: str) -> int:
        """Loads what the lane needs; collective over the device workers. Answers the bytes of memory that it holds."""
        with self._telling("loading models"):
            if self.station.rank is not None:
                world = len(self.station.lanes_by_rank)
                if world > 1:
                    if (interface := interface_of(self.station.address)) is not None:
                        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
                    backend = "nccl" if self.station.device.startswith("cuda") else "gloo"
                    dist.init_process_group(
                        backend, init_method=meeting_point, rank=self.station.rank, world_size=world
                    )
                self.holdings = Holdings(self.station, self.lowered)
                self._stages = self.device = DeviceStages(
                    self.station, self.lowered, self.holdings, self.materials, self.selector
                )
            return _memory_bytes(self.station)

    def publish_initial(self) -> dict[tuple[str, int], Any]:
        """This rank's part of the weights that the run begins with, by model and version, of what it trains."""
        with self._telling("publishing weights"):
            broadcasts: dict[tuple[str, int], Any] = {}
            for holding in self.holdings.trained.values():
                for version in self.holdings.versions_at_start(holding.model):
                    self.holdings.take_version(holding, version)
                    for model, weights_ in self.device.publish(holding).items():
                        broadcasts[model, version] = weights_
            return broadcasts

    def receive_initial(self, broadcasts: Mapping[tuple[str, int], Sequence[Any]]) -> None:
        """Brings copies to the versions that the run begins with, and puts to rest what rests on the host."""
        with self._telling("taking weights"):
            for copy in self.lowered.copies:
                if copy.name in self.holdings.copies:
                    version = copy.version_before(self.station.first_step)
                    self._receive(self.holdings.copies[copy.name], broadcasts[copy.model, version])
            for rest in self.lowered.rests:
                self.holdings.offload(rest)

    def is_there(self) -> bool:
        """Answers, unless the process is busy or gone."""
        return True

    def run(self, work: Work, *batches: Samples) -> Any:
        """An item of a stage from which nothing is expected before its end: its answers, bundled."""
        return bundle(self.answers(work, batches), work.contents)

    def stream(self, work: Work, *batches: Samples) -> Iterator[Any]:
        """The answers to an item one by one, each packed."""
        for answer in self.answers(work, batches):
            yield from pack(answer)

    def answers(self, work: Work, batches: Sequence[Samples]) -> Iterator[Answer]:
        """An item of a stage. A `Part` for each base part of a generator, and `Done` at the end."""
        stage = self.plan.graph.stage(work.item.name)
        inputs = Inputs(work.data, batches)
        # The end must be written before it is told: whoever reads the log then finds the span.
        with self._span(work) as notes:
            done = yield from self._stages.run(work, stage, inputs, notes)
        yield done

    def receive(self, work: Work, references: Sequence[Any]) -> Any:
        """A transfer: takes a version, of which each reference is a part, into the copy that the item names."""
        with self._span(work) as notes:
            holding = self.holdings.copies[work.item.name]
            if holding.version != dict(work.versions)[holding.model] or not holding.digest:
                self._receive(holding, references)
            notes.reads[holding.model] = holding.version
            notes.digests[f"{holding.model}@{holding.version}"] = holding.digest
        return bundle([Done()], work.contents)

    def fetch(self, reference: Any) -> weights.Broadcast:
        """What a reference to weights points to; among workers of one process it is the thing itself."""
        found: weights.Broadcast = reference
        return found

    def move(self, work: Work) -> Any:
        """A reload or an offload of what rests on the host between its runs."""
        with self._span(work):
            rest = next(rest for rest in self.lowered.rests if rest.name == work.item.name)
            if work.item.kind is ItemKind.RELOAD:
                self.holdings.reload(rest)
            else:
                self.holdings.offload(rest)
        return bundle([Done()], work.contents)

    def export(self, model: str, directory: str) -> None:
        """Writes a trained model as a Hugging Face directory with its tokenizer; collective over its trainer's block."""
        with self._telling("writing the trained model"):
            self.holdings.trained[model].trainer.reload("weights")
            self.holdings.trained[model].trainer.save_model(directory)
            trainer = self.plan.graph.trainer(model)
            assert trainer is not None
            if self.station.lane == self.plan.assignment(trainer.name).all_lanes()[0]:
                self.materials.tokenizer.save_pretrained(directory)

    def close(self) -> None:
        """Ends cleanly."""
        if self._heart is not None:
            self._heart.close()
        self._spans.close()
        self.materials.close()
        if not self.station.is_host:
            self.device.saver.close()
        if dist.is_initialized() and dist.get_world_size() > 1:  # a group of one is a generation engine's own
            dist.destroy_process_group()

    def _receive(self, holding: Holding, references: Sequence[Any]) -> None:
        weights.receive(holding, map(self.fetch, references), DTYPES[self.job.dtype])
        self.holdings.refresh(holding)

    def _telling(self, doing: str, step: int | None = None) -> AbstractContextManager[None]:
        """Whoever watches over the workers is told what this one does."""
        return self._heart.during(doing, step) if self._heart is not None else nullcontext()

    @contextmanager
    def _span(self, work: Work) -> Iterator[Notes]:
        notes, start = Notes(), time.monotonic()
        with self._telling(str(work.item), work.item.step):
            yield notes
        span = Span(
            self.station.name,
            self.station.lane,
            work.item,
            work.seq,
            start,
            time.monotonic(),
            notes.reads,
            notes.makes,
            notes.digests,
            tuple(notes.ids),
            notes.tokens,
            _memory_bytes(self.station),
        )
        self._spans.write(span.to_json())


def _settle(station: Station) -> None:
    """One thread a device; a CPU device stays on its core."""
    torch.set_num_threads(1)
    if station.core is not None and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))  # a scheduler may have left this node only some of them
        os.sched_setaffinity(0, {cores[station.core % len(cores)]})
    if station.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(station.device))


def _memory_bytes(station: Station) -> int:
    """The most that the process has held: of the device's memory, or resident for a CPU device."""
    if station.device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
