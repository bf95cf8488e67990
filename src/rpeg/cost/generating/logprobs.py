"""What an engine takes to hand out the log-probability of each token that it samples."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rpeg.cost.machine import Machine

# Of the host for one token on its way out of vLLM, which rollouts ask for (NeMo RL v0.5.0, nemo_rl/models/generation/
# vllm/vllm_worker.py; verl, its vLLM server): tokens/s with and without it, 13,583 and 18,645 at 64 sequences of a
# 0.5B model (vllm-project/vllm pull request 57442).
_SECONDS = {"vllm": 1 / 13583 - 1 / 18645}


@lru_cache(maxsize=64)
def with_logprobs(machine: Machine) -> Machine:
    """The machine with an engine that hands them out; of other engines than vLLM nothing is known."""
    serving = machine.stack.serving
    serving = replace(serving, row_seconds=serving.row_seconds + _SECONDS.get(machine.stack.name, 0.0))
    return replace(machine, stack=replace(machine.stack, serving=serving))
