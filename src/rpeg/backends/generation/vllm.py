"""`VllmEngine`: vLLM in this process, behind the same protocol as the slot engine.

vLLM is imported when an engine is made, and need not be installed before. What differs from the slot engine is in
`docs/generation.md`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rpeg.architecture.huggingface import read
from rpeg.backends.adapters import whole_parameters
from rpeg.backends.generation.admission import by_prompt, check
from rpeg.backends.generation.protocol import (
    Floats,
    More,
    Request,
    Response,
    Sampling,
    Setup,
    nothing_more,
)
from rpeg.backends.generation.vllm_requests import Row, params_of
from rpeg.backends.samples import Ints
from rpeg.errors import InputError, RunError

KV_SHARE = 0.8
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process: its tensors can be handed over, no second one is to be watched
    "VLLM_HOST_IP": "127.0.0.1",  # its group of one meets on this machine alone
    "VLLM_NO_USAGE_STATS": "1",  # nothing is told to anybody
}
_BLOCK = 128  # tokens; vLLM's largest usual block


class VllmEngine:
    """A generation engine of vLLM's, with a copy of the weights of its own.

    directory: of the model's configuration; weights come by `load_weights`, before anything is generated.
    slots: responses at once. dtype: of the weights. Keys and values get the memory that so many responses of
    `max_length` take, but no more than `KV_SHARE` of what is free on the device.
    truncates: whether top_p or top_k will be asked for. It decides which of vLLM's log-probabilities are those of the
    tempered, untruncated distribution: the processed ones without truncation, the raw ones at temperature 1.

    Raises InputError where vLLM is not installed.
    """

    NEEDS = "vllm"
    SHARES_NO_GROUP = True
    """vLLM makes process groups among all processes of the one that it finds itself in."""

    def __init__(
        self,
        directory: str,
        *,
        slots: int,
        max_length: int,
        dtype: torch.dtype,
        device: torch.device,
        truncates: bool = False,
    ) -> None:
        _demand_vllm()
        os.environ.update(_ENVIRONMENT)
        from vllm import EngineArgs, LLMEngine
        from vllm.config import WeightTransferConfig

        from rpeg.backends.generation import vllm_weights

        self._on_processor = device.type == "cpu"
        self._truncates, self._max_length = truncates, max_length
        self._kv_bytes = _kv_bytes(directory, slots, max_length, dtype, device)
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=directory,
                skip_tokenizer_init=True,
                load_format="dummy",
                generation_config="vllm",
                dtype=str(dtype).removeprefix("torch."),
                max_model_len=max_length,
                max_num_seqs=slots,
                kv_cache_memory_bytes=self._kv_bytes,
                enable_prefix_caching=True,
                enable_sleep_mode=not self._on_processor,
                enforce_eager=self._on_processor,
                logprobs_mode="raw_logprobs" if truncates else "processed_logprobs",
                weight_transfer_config=WeightTransferConfig(backend=vllm_weights.NAME),
                disable_log_stats=True,
            )
        )
        self._vocabulary = int(self._engine.model_config.get_vocab_size())
        self._rows: dict[str, Row] | None = None
        self._unfinished: tuple[Request, ...] = ()
        self._stopping = False
        self._holds_weights = False

    @classmethod
    def made(cls, setup: Setup) -> Self:
        """For a plan's stage."""
        engine = cls(
            setup.directory,
            slots=setup.slots,
            max_length=setup.max_length,
            dtype=setup.dtype,
            device=setup.device,
            truncates=setup.truncates,
        )
        if setup.module is not None:
            engine.load_weights(whole_parameters(setup.module), setup.version)
        return engine

    @property
    def cache_bytes(self) -> int:
        """Memory that KV buffers hold now: vLLM's are of one size whenever it is awake."""
        return self._kv_bytes if self._holds_weights else 0

    @property
    def version(self) -> int:
        """Of the weights that it has taken; -1 before the first."""
        said = self._engine.get_weight_version()
        return int(said) if said.isdigit() else -1

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Takes new weights in place, and wakes an engine that sleeps. RunError while a generation goes on.

        weights: all, by Hugging Face names, and tied ones under each of their names: vLLM keeps a tied head apart while
        it loads, and one that is not sent would stay as it was.
        """
        self._demand_idle()
        if not self._holds_weights and not self._on_processor:
            self._engine.wake_up()
        self._engine.collective_rpc("start_weight_update")
        self._engine.collective_rpc("update_weights", kwargs={"update_info": {"weights": weights}})
        self._engine.collective_rpc("finish_weight_update")
        self._engine.set_weight_version(str(version))
        self._holds_weights = True

    def drop_caches(self) -> None:
        """Forgets the keys and values of all prefixes. RunError while a generation goes on."""
        self._demand_idle()
        if not self._engine.reset_prefix_cache():
            raise RunError("vLLM has not dropped its prefix cache: blocks of it are in use")

    def sleep(self) -> None:
        """Gives back the memory of weights and KV cache (level 2: nothing is kept on the host). Weights must be loaded
        again before the next generation. Processors have no such memory to give back; there it only forgets."""
        self.drop_caches()
        if not self._on_processor and self._holds_weights:
            self._engine.sleep(level=2)
        self._holds_weights = False

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        seed: int,
        version: int,
        more: More = nothing_more,
    ) -> Iterator[Response]:
        """Each response as soon as it is finished; a function of (weights, request, sampling, seed), up to rounding.

        Raises InputError at once for requests that cannot be served; RunError for a version that the engine has not.
        """
        self._check(requests, sampling)
        if not self._holds_weights:
            raise RunError("the engine slept and has no weights: load them before it generates")
        if version != self.version:
            raise RunError(
                f"generation with weights of version {version} is asked of an engine that has {self.version}"
            )
        self._stopping = False
        return self._run(requests, sampling, seed, version, more)

    def stop(self) -> None:
        """Ends the generation that goes on after the step under way."""
        self._stopping = True

    @property
    def unfinished(self) -> tuple[Request, ...]:
        """What the last generation has left where it was stopped."""
        return self._unfinished

    def score(self, tokens: Ints) -> Floats:
        """(n - 1,) log-probabilities of the n tokens after the first, at temperature 1."""
        from vllm import SamplingParams

        self._demand_idle()
        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        self._engine.add_request("score", {"prompt_token_ids": tokens.tolist()}, params)
        found: list[Any] = []
        while self._engine.has_unfinished_requests():
            found += [out.prompt_logprobs for out in self._engine.step() if out.finished]
        pairs = zip(tokens[1:].tolist(), found[0][1:], strict=True)
        return np.asarray([place[token].logprob for token, place in pairs], dtype=np.float64)

    def _run(
        self, requests: Sequence[Request], sampling: Sampling, seed: int, version: int, more: More
    ) -> Iterator[Response]:
        self._demand_idle()
        rows = self._rows = {}
        self._unfinished = ()
        try:
            self._admit(requests, sampling, seed)
            while self._goes_on(sampling, seed, more):
                for output in self._engine.step():
                    drawn = output.outputs[0]
                    rows[output.request_id].add(drawn.token_ids, drawn.logprobs)
                    if output.finished:
                        yield rows.pop(output.request_id).response(version, drawn.finish_reason)
            self._unfinished = tuple(row.now(version) for row in rows.values())
        finally:
            self._abort()
            self._rows = None

    def _goes_on(self, sampling: Sampling, seed: int, more: More) -> bool:
        """Whether there is a step to do; takes further requests in."""
        further = more()
        self._check(further, sampling)
        self._admit(further, sampling, seed)
        return not self._stopping and bool(self._rows)

    def _admit(self, requests: Sequence[Request], sampling: Sampling, seed: int) -> None:
        assert self._rows is not None
        for request in by_prompt(requests):
            name, prompt = str(request.id), {"prompt_token_ids": list(request.context)}
            self._engine.add_request(name, prompt, params_of(request, sampling, seed))
            self._rows[name] = Row(request)

    def _abort(self) -> None:
        if self._rows:
            self._engine.abort_request(list(self._rows))

    def _check(self, requests: Sequence[Request], sampling: Sampling) -> None:
        check(requests, sampling, vocabulary=self._vocabulary, max_length=self._max_length)
        tempered = sampling.temperature != 1.0
        if (sampling.truncates and not self._truncates) or (
            tempered and (self._truncates or sampling.greedy)
        ):
            raise InputError(
                "vLLM notes log-probabilities at the temperature or before truncation, not both: they would not be those "
                f"of temperature {sampling.temperature:g} with top_p {sampling.top_p:g} and top_k {sampling.top_k}. "
                "Set temperature: 1, or top_p: 1 and top_k: 0, or take the backend torch"
            )

    def _demand_idle(self) -> None:
        if self._rows is not None:
            raise RunError(f"{len(self._rows)} requests are active; exhaust or close the iterator first")


def _kv_bytes(directory: str, slots: int, max_length: int, dtype: torch.dtype, device: torch.device) -> int:
    """Memory for keys and values: so many responses, each rounded up to whole blocks."""
    response = -(-max_length // _BLOCK) * _BLOCK
    wanted = (
        slots * read(directory).kv_elements(response) * dtype.itemsize + 2**22
    )  # vLLM keeps a block for itself
    return wanted if device.type == "cpu" else min(wanted, int(KV_SHARE * torch.cuda.mem_get_info(device)[0]))


def _demand_vllm() -> None:
    if importlib.util.find_spec("vllm") is None:
        raise InputError("the backend vllm is asked for and vLLM is not installed: pip install vllm==0.32.0")


BACKEND = VllmEngine
