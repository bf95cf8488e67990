"""Scores of responses. A verifier that fails costs its sample the reward, never the run."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt

from rpeg.backends.reward.failure import Failed, Raised, TimedOut, describe
from rpeg.backends.reward.pool import FunctionPool
from rpeg.backends.reward.process import FunctionProcess
from rpeg.errors import InputError, RpegError, RunError
from rpeg.job.rewards import Reward

Verifier = Callable[[str, str, str], float]
_VERIFIERS = "rpeg.backends.reward.verifiers"


@dataclass(frozen=True)
class RewardReport:
    """scores: (n,) float64. failed, timed_out, truncated: how many of them are zero for which reason.

    failed: the verifier raised, died or gave no finite number. truncated: cut, and given zero by the policy.
    reason: what the first failure said.
    """

    scores: npt.NDArray[np.float64]
    failed: int = 0
    timed_out: int = 0
    truncated: int = 0
    reason: str = ""


@dataclass
class Scorer:
    """A verifier with its policies; a context manager, since a user's function has a process.

    A `python:` function, and a built-in verifier that is `ISOLATED`, runs in `workers` processes of its own and is killed
    at `time_limit_seconds` a sample, so n samples take n / workers limits at most. The others run here: they take linear
    time.
    """

    verifier: Verifier
    zero_truncated: bool = False
    workers: int = 1

    def score(
        self,
        prompts: Sequence[str],
        responses: Sequence[str],
        answers: Sequence[str],
        truncated: Sequence[bool] | npt.NDArray[np.bool_],
    ) -> RewardReport:
        """Scores of n responses. truncated: which were cut at the maximum length (`finish` is length)."""
        scores = np.zeros(len(responses))
        failed = timed_out = 0
        reason = ""
        rows = [row for row in range(len(responses)) if not (truncated[row] and self.zero_truncated)]
        cut = len(responses) - len(rows)
        asked = ((prompts[row], responses[row], answers[row]) for row in rows)
        for row, found in zip(rows, self._all(asked), strict=True):
            if isinstance(found, TimedOut):
                timed_out += 1
            elif isinstance(found, Exception):
                failed += 1
                reason = reason or (str(found) if isinstance(found, Failed) else describe(found))
            else:
                scores[row] = found
        return RewardReport(scores, failed, timed_out, cut, reason)

    def _all(self, asked: Iterable[tuple[str, str, str]]) -> Iterator[float | Exception]:
        """The score of each, or why it has none, in order."""
        if self.workers == 1:
            yield from map(self._one, asked)
            return
        with ThreadPoolExecutor(self.workers) as threads:
            yield from threads.map(self._one, asked)

    def _one(self, sample: tuple[str, str, str]) -> float | Exception:
        try:
            return _finite(self.verifier(*sample))
        except RpegError:  # the reward cannot be computed at all
            raise
        except Exception as error:  # noqa: BLE001  (whatever a verifier raises)
            return error

    def close(self) -> None:
        """End the verifier's processes, if it has any."""
        if isinstance(self.verifier, FunctionPool):
            self.verifier.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def make_scorer(reward: Reward) -> Scorer:
    """The scorer that a job's `reward` section asks for. InputError when a function cannot be imported."""
    verifier = make_verifier(reward)
    workers = len(verifier.processes) if isinstance(verifier, FunctionPool) else 1
    return Scorer(verifier, reward.truncated == "zero", workers)


def make_verifier(reward: Reward) -> Verifier:
    """A built-in `reward` by its name, or a function in processes of which one has started."""
    reference = reward.name
    if not reward.is_function:
        module = importlib.import_module(f"{_VERIFIERS}.{reward.name}")
        if not getattr(module, "ISOLATED", False):
            verifier: Verifier = module.reward
            return verifier
        reference = f"python:{_VERIFIERS}.{reward.name}:reward"
    pool = FunctionPool(
        [
            FunctionProcess(reference, reward.import_from, reward.time_limit_seconds, reward.options)
            for _ in range(reward.workers)
        ]
    )
    pool.start()
    return pool


def check_reward(reward: Reward, prompt: str = "1 + 1 =", answer: str = "2") -> None:
    """Really starts a `python:` function once, and scores one sample whose response is its answer.

    InputError with the reason where no sample could get a score: it cannot be imported or called, ends its process,
    takes longer than its limit, gives no finite number. That it raises is no reason: the sample may not suit it, and
    costs one reward.
    """
    if not reward.is_function:
        return
    try:
        with make_scorer(reward) as scorer:
            _finite(scorer.verifier(prompt, answer, answer))
    except Raised:
        return
    except TimedOut:
        raise InputError(
            f"{reward.name}: took longer than reward.time_limit_seconds {reward.time_limit_seconds:g} on a first sample. "
            "Raise the limit, or load what it needs when its module is imported."
        ) from None
    except Failed as error:
        raise InputError(f"{reward.name}: cannot score a sample: {error}") from None
    except RunError as error:
        raise InputError(str(error)) from None


def _finite(score: float) -> float:
    if not math.isfinite(score):
        raise Failed(f"the verifier gave {score}")
    return float(score)
