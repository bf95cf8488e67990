"""Cases of an independent implementation, and how each of its functions is said in ours.

A case has `fn`, `params`, `inputs` and `outputs`; nothing here looks at its id. Ours run under the preset `verl` of
`rpeg.algorithms.conventions`. Each function gives pairs (ours, theirs); what is outside the mask is left out, for there
ours is zero and theirs is not always.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rpeg.algorithms import (
    aggregation,
    cispo,
    corrections,
    gmpo,
    groups,
    grpo,
    gspo,
    kl,
    masked,
    mismatch,
    ppo,
    reinforce,
    reinforce_plus_plus,
    remax,
    returns,
    rloo,
    sapo,
    shaping,
)
from rpeg.algorithms.conventions import VERL
from rpeg.backends.training.logprobs import token_logprobs
from rpeg.schedule.balance import balance

Case = Mapping[str, Any]
Pair = tuple[Any, Any]
EPS = VERL.mean_epsilon

FACTS = Path(__file__).parent / "data" / "verl_numerics.json"
ESTIMATORS = {"kl": "k1", "mse": "k2", "low_var_kl": "low_variance", "k3": "low_variance"}
AGGREGATIONS = {
    "token-mean": "token_mean",
    "token-sum": "token_sum",
    "seq-mean-token-sum": "sequence_mean_token_sum",
    "seq-mean-token-sum-norm": "fixed_length",
    "seq-mean-token-mean": "sequence_mean_token_mean",
}


def read_cases(path: Path = FACTS) -> list[dict[str, Any]]:
    """The cases with their arrays put in place."""
    facts = json.loads(path.read_text())
    arrays = facts.get("arrays", [])

    def whole(values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            k: arrays[v["array"]] if isinstance(v, dict) and "array" in v else v for k, v in values.items()
        }

    return [c | {"inputs": whole(c["inputs"]), "outputs": whole(c["outputs"])} for c in facts["cases"]]


def pairs(case: Case) -> Iterator[Pair]:
    """(ours, theirs) of everything that a case states."""
    yield from RUNNERS[case["fn"]](case)


def tolerance(case: Case) -> tuple[float, float]:
    """(relative, absolute), as the facts suggest."""
    if case["fn"] in ("compute_grpo_outcome_advantage", "compute_gpg_outcome_advantage"):
        return 1e-6, 1e-12 if case["dtype"] == "float64" else 1e-6
    if case["fn"] in ("compute_grpo_vectorized_outcome_advantage", "compute_gdpo_outcome_advantage"):
        return 1e-5, 1e-6
    return (1e-5, 1e-6) if case["dtype"] == "float32" else (1e-9, 1e-12)


def _tensor(case: Case, name: str) -> Tensor:
    kinds = {"float64": torch.float64, "float32": torch.float32, "int64": torch.int64}
    return torch.tensor(_numbers(case["inputs"][name]), dtype=kinds[case["dtype"]])


def _double(value: Any) -> Tensor:
    return torch.tensor(_numbers(value), dtype=torch.float64)


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return float(value) if isinstance(value, str) else value


def _mask(case: Case, name: str = "response_mask") -> Tensor:
    return torch.tensor(case["inputs"][name]) > 0


def _group(case: Case) -> Tensor:
    names = case["inputs"]["index"]
    return torch.tensor([sorted(set(names)).index(name) for name in names])


def _within(ours: Tensor, theirs: Any, mask: Tensor) -> Pair:
    return ours[mask], torch.tensor(_numbers(theirs), dtype=ours.dtype)[mask]


# Advantages


def _advantages(found: Mapping[str, Tensor], case: Case) -> Iterator[Pair]:
    mask = _mask(case)
    for name in ("advantages", "returns"):
        yield _within(found[name] if name in found else found["advantages"], case["outputs"][name], mask)


def _gae(case: Case) -> Iterator[Pair]:
    hyper = ppo.Hyper(conventions="verl", **case["params"])
    columns = {"token_rewards": _tensor(case, "token_level_rewards"), "values": _tensor(case, "values")}
    found = ppo.gae(columns, _mask(case), hyper)
    yield from _advantages(found | ppo.whiten(found, _mask(case), hyper), case)


def _by_group(op: Callable[..., dict[str, Tensor]], hyper: Any) -> Callable[[Case], Iterator[Pair]]:
    def run(case: Case) -> Iterator[Pair]:
        mask = _mask(case)
        columns = {"rewards": _tensor(case, "token_level_rewards").sum(1), "group": _group(case)}
        params = {NAMES[n]: v for n, v in case["params"].items() if n in NAMES}
        chosen = replace(hyper, conventions=hyper.conventions, **params)
        found = op(columns, mask, chosen)
        if getattr(hyper, "baseline", "") == "group" and isinstance(hyper, reinforce_plus_plus.Hyper):
            found = shaping.whiten(found, mask, chosen)
        yield from _advantages(found, case)

    return run


NAMES = {"norm_adv_by_std_in_grpo": "normalize_std"}


def _gpg(case: Case) -> Iterator[Pair]:
    hyper = reinforce.Hyper(baseline="group", scale_by_scored=True, conventions="verl")
    columns = {"rewards": _tensor(case, "token_level_rewards").sum(1), "group": _group(case)}
    advantages = reinforce.baseline(columns, _mask(case), hyper)["advantages"]
    yield from _advantages({"advantages": advantages / case["params"].get("f_norm", 1.0)}, case)


def _gdpo(case: Case) -> Iterator[Pair]:
    mask = _mask(case)
    rewards = _tensor(case, "token_level_rewards").sum(1, keepdim=True)
    kinds = [v for k, v in case["inputs"].items() if k.startswith("score_")]
    if "scores" in case["inputs"]:
        kinds = list(dict(case["inputs"]["scores"]).values())
    if kinds:
        rewards = torch.tensor(kinds, dtype=rewards.dtype).T
    weights = case["params"].get("gdpo_reward_weights")
    summed = groups.decoupled_normalize(rewards, _group(case), weights, VERL)
    white = masked.masked_whiten(summed.unsqueeze(1).expand(mask.shape), mask, epsilon=EPS)
    yield from _advantages({"advantages": white}, case)


def _best(case: Case) -> Iterator[Pair]:
    rewards = _tensor(case, "token_level_rewards").sum(1)
    normalize = case["params"].get("norm_adv_by_std_in_grpo", True)
    lead = groups.best_of_group(rewards, _group(case), normalize=normalize, conventions=VERL)
    yield from _advantages({"advantages": lead.unsqueeze(1) * _mask(case)}, case)


def _reinforce_plus_plus(case: Case) -> Iterator[Pair]:
    hyper = reinforce_plus_plus.Hyper(gamma=case["params"]["gamma"], conventions="verl")
    columns = {"token_rewards": _tensor(case, "token_level_rewards")}
    found = reinforce_plus_plus.token_returns(columns, _mask(case), hyper)
    white = shaping.whiten(found, _mask(case), hyper)
    yield from _advantages(white | {"returns": found["advantages"]}, case)


def _remax(case: Case) -> Iterator[Pair]:
    columns = {
        "token_rewards": _tensor(case, "token_level_rewards"),
        "baseline_rewards": _tensor(case, "reward_baselines"),
    }
    found = remax.greedy_baseline(columns, _mask(case), remax.Hyper(conventions="verl"))
    sums = returns.discounted_returns(columns["token_rewards"], _mask(case))
    yield from _advantages(found | {"returns": sums}, case)


# Losses


def _weights(mask: Tensor, params: Case, epsilon: float = EPS) -> Tensor:
    """(n, 1): what a token weighs for a rank that averages gradients over its peers.

    Where the whole batch is larger than this part, other responses stand in for the rest of it.
    """
    lengths = mask.sum(1)
    here = int((lengths > 0).sum())
    rows = params.get("global_batch_size") or here
    tokens = params.get("batch_num_tokens") or int(lengths.sum())
    others = torch.ones(rows - here, dtype=lengths.dtype)
    if len(others):
        others[0] += tokens - int(lengths.sum()) - len(others)
    kind: Any = AGGREGATIONS[params["loss_agg_mode"]]
    fixed = params.get("loss_scale_factor") or mask.shape[1]
    whole = aggregation.token_weights(torch.cat([lengths, others]), kind, fixed, epsilon)
    return whole[: len(mask), None] * params.get("dp_size", 1)


def _agg_loss(case: Case) -> Iterator[Pair]:
    matrix, mask = _tensor(case, "loss_mat").requires_grad_(), _mask(case, "loss_mask")
    loss = (_weights(mask, case["params"]) * masked.inside(matrix, mask)).sum()
    loss.backward()
    yield loss, case["outputs"]["loss"]
    yield _within(matrix.grad, case["outputs"]["grad_loss_mat"], mask)


def _policy_loss(op: Callable[..., Any], hyper: Any) -> Callable[[Case], Iterator[Pair]]:
    def run(case: Case) -> Iterator[Pair]:
        params, mask, out = case["params"], _mask(case), case["outputs"]
        logprobs = _tensor(case, "log_prob").requires_grad_()
        old = _tensor(case, "old_log_prob")
        columns = {"logprobs": logprobs, "old_logprobs": old, "advantages": _tensor(case, "advantages")}
        if case["inputs"].get("rollout_is_weights") is not None:
            columns["importance_weights"] = _tensor(case, "rollout_is_weights")
        found = op(columns, mask, _with_clips(hyper, params))
        of_rows = isinstance(hyper, gmpo.Hyper)  # theirs is a plain mean of rows, whatever loss_agg_mode says
        loss = (_weights(mask, params, 0.0 if of_rows else EPS) * found.loss).sum()
        loss.backward()
        yield loss, out["loss"]
        yield _within(logprobs.grad, out["grad_log_prob"], mask)
        yield from _policy_metrics(found.metrics, old - logprobs.detach(), mask, case)

    return run


def _with_clips(hyper: Any, params: Case) -> Any:
    changes = {}
    for theirs, ours in (("low", "clip_low"), ("high", "clip_high")):
        value = params.get(f"clip_ratio_{theirs}")
        if hasattr(hyper, ours):
            changes[ours] = params["clip_ratio"] if value is None else value
    if hasattr(hyper, "dual_clip"):
        changes["dual_clip"] = params.get("clip_ratio_c", 3.0)
    for name in ("tau_positive", "tau_negative"):
        if hasattr(hyper, name) and name[:7] in params:
            changes[name] = params[name[:7]]
    return replace(hyper, **changes)


def _policy_metrics(metrics: Mapping[str, Tensor], gap: Tensor, mask: Tensor, case: Case) -> Iterator[Pair]:
    bounded = gap.clamp(-kl.LOG_RATIO_BOUND, kl.LOG_RATIO_BOUND)
    known = {
        "actor/pg_clipfrac": metrics.get("clip_fraction"),
        "actor/pg_clipfrac_lower": metrics.get("dual_clip_fraction", metrics["approx_kl"] * 0),
        "actor/ppo_kl": gap if "gspo" in case["fn"] or "geo" in case["fn"] else bounded,
    }
    if "geo_mean" in case["fn"]:
        signs = torch.tensor(case["inputs"]["advantages"])
        known["actor/pg_clipfrac"] = metrics["clip_fraction"] * (signs > 0)
        known["actor/pg_clipfrac_lower"] = metrics["clip_fraction"] * (signs < 0)
    for name, theirs in case["outputs"].get("metrics", {}).items():
        column = known[name]
        yield (masked.masked_mean(column, mask, epsilon=EPS) if column is not None else 0.0), theirs


def _value_loss(case: Case) -> Iterator[Pair]:
    mask, params = _mask(case), case["params"]
    new = _tensor(case, "vpreds").requires_grad_()
    columns = {"new_values": new, "values": _tensor(case, "values"), "returns": _tensor(case, "returns")}
    found = ppo.ppo_value_loss(columns, mask, ppo.Hyper(value_clip=params["cliprange_value"]))
    loss = (_weights(mask, params) * found.loss).sum()
    loss.backward()
    yield loss, case["outputs"]["vf_loss"]
    clipped = masked.masked_mean(found.metrics["value_clip_fraction"], mask, epsilon=EPS)
    yield clipped, case["outputs"]["vf_clipfrac"]
    yield _within(new.grad, case["outputs"]["grad_vpreds"], mask)


# The divergence from the reference


def _estimator(name: str) -> Any:
    base = name.removesuffix("+")
    ours = ESTIMATORS.get(base, base)
    return ours if ours == "k2" else ours + name[len(base) :]


def _kl_penalty(case: Case) -> Iterator[Pair]:
    mask, logprobs = _mask(case), _tensor(case, "logprob").requires_grad_()
    found = kl.kl_estimate(logprobs, _tensor(case, "ref_logprob"), _estimator(case["params"]["kl_penalty"]))
    masked.inside(found, mask).sum().backward()
    yield _within(found.detach(), case["outputs"]["kl"], mask)
    yield _within(logprobs.grad, case["outputs"]["grad_logprob_of_masked_sum"], mask)


def _controller(case: Case) -> Iterator[Pair]:
    params, value = case["params"], case["params"]["init_kl_coef"]
    for update, theirs in zip(case["inputs"]["updates"], case["outputs"]["values"], strict=True):
        if case["fn"] == "AdaptiveKLController":
            value = kl.next_coefficient(
                value,
                update["current_kl"],
                update["n_steps"],
                target=params["target_kl"],
                horizon=params["horizon"],
            )
        yield value, theirs


def _compute_rewards(case: Case) -> Iterator[Pair]:
    scores, old, ref = (_tensor(case, n) for n in ("token_level_scores", "old_log_prob", "ref_log_prob"))
    everywhere = torch.ones_like(scores) > 0
    found, _ = returns.less_kl(scores, old, ref, everywhere, "k1", case["params"]["kl_ratio"])
    yield _within(found, case["outputs"]["token_level_rewards"], everywhere)


def _apply_kl_penalty(case: Case) -> Iterator[Pair]:
    params, mask, out = case["params"], _mask(case), case["outputs"]
    scores, old, ref = (_tensor(case, n) for n in ("token_level_scores", "old_log_probs", "ref_log_prob"))
    start = params.get("init_kl_coef", params.get("kl_coef"))
    hyper = ppo.Hyper(
        kl_estimator=_estimator(params["kl_penalty"]),
        kl_coefficient=start,
        kl_target=params["target_kl"] if params["controller"] == "adaptive" else None,
        kl_horizon=params.get("horizon", 1.0),
        conventions="verl",
    )
    columns = {"rewards": scores.sum(1) * 0, "old_logprobs": old, "ref_logprobs": ref}
    columns["kl_coefficient"] = torch.tensor(start, dtype=torch.float64)
    found = shaping.kl_penalty(columns, mask, hyper)
    yield _within(scores + found["token_rewards"], out["token_level_rewards"], mask)
    yield float(found.get("kl_coefficient", start)), out["controller_value_after"]
    divergence = masked.masked_mean(found["reward_kl"], mask, 1, EPS).mean()
    theirs = out["metrics"]
    yield divergence, theirs["actor/reward_kl_penalty"]
    yield start, theirs["actor/reward_kl_penalty_coeff"]


# Responses of another policy


def _span(threshold: Any) -> tuple[float | None, float]:
    """(floor, cap) of a number, or of a text such as 0.5_2.0."""
    low, _, high = str(threshold).rpartition("_")
    return (float(low) if low else None), float(high)


def _importance(case: Case) -> Iterator[Pair]:
    mask, params, out = _mask(case), case["params"], case["outputs"]
    log_ratio = _tensor(case, "log_ratio")
    floor, cap = _span(params["rollout_is_threshold"])
    level = params["rollout_is"]
    weights, raw = corrections.importance_weights(log_ratio, mask, level, cap, floor, epsilon=EPS)
    scaled, _ = corrections.importance_weights(
        log_ratio,
        mask,
        level,
        cap,
        floor,
        normalize=params.get("rollout_is_batch_normalize", False),
        epsilon=EPS,
    )
    yield _within(scaled, out["rollout_is_weights"], mask)
    metrics = mismatch.importance_metrics(weights, raw, mask, cap, floor, EPS)
    of_tokens = level == "token"
    extremes = {"max": weights[mask].max(), "min": weights[mask].min()} if of_tokens else metrics
    share_of = "" if of_tokens else "response_"
    names = {
        "mean": metrics["mean"],
        "max": extremes["max"],
        "min": extremes["min"],
        "std": metrics["std"],
        "ratio_fraction_high": metrics[f"{share_of}above"],
        "ratio_fraction_low": metrics[f"{share_of}below"],
        "eff_sample_size": metrics["effective_share"],
        "oob_ratio": masked.masked_mean((raw != weights).double(), mask, epsilon=EPS),
        "batch_norm_factor": (weights[mask] / scaled[mask])[weights[mask] > 0].mean(),
        "seq_mean": metrics["response_mean"],
        "seq_std": metrics["response_std"],
        "seq_max": metrics["response_max"],
        "seq_min": metrics["response_min"],
        "seq_max_deviation": metrics["response_deviation"],
        "seq_fraction_high": metrics["response_above"],
        "seq_fraction_low": metrics["response_below"],
    }
    for name, theirs in out["metrics"].items():
        yield Loose(names[name.removeprefix("rollout_is_")]), theirs


class Loose(float):
    """A figure that the facts give to single precision."""


LEVELS = {"token": "token", "seq_sum": "sequence_sum", "seq_mean": "sequence_mean", "seq_max": "sequence_max"}


def _rejection(case: Case) -> Iterator[Pair]:
    mask, params, out = _mask(case), case["params"], case["outputs"]
    options = [option.strip() for option in params["rollout_rs"].split(",")]
    thresholds = str(params["rollout_rs_threshold"]).split(",")
    thresholds = thresholds * len(options) if len(thresholds) == 1 else thresholds
    kept = mask
    for option, threshold in zip(options, thresholds, strict=True):
        level, _, estimator = option.rpartition("_")
        low, high = _span(threshold)
        by: Any = LEVELS[level]
        log_ratio = _tensor(case, "log_ratio")
        passed, _ = corrections.rejection_mask(log_ratio, mask, by, estimator, low, high, EPS)  # type: ignore[arg-type]
        kept = kept & passed
    theirs = out.get("modified_response_mask", out.get("mask"))
    yield kept.double(), torch.tensor(theirs, dtype=torch.float64)
    dropped = masked.masked_mean((~kept).double(), mask, epsilon=EPS)
    metrics = out.get("metrics", {})
    yield Loose(dropped), metrics.get("rollout_rs_masked_fraction", dropped)


def _offpolicy(case: Case) -> Iterator[Pair]:
    old, behaviour = _tensor(case, "old_log_prob"), _tensor(case, "rollout_log_prob")
    found = mismatch.policy_metrics(old, behaviour, _mask(case), EPS)
    names = {
        "kl": "behaviour_kl",
        "k3_kl": "behaviour_kl_k3",
        "training_ppl": "perplexity",
        "rollout_ppl": "behaviour_perplexity",
        "ppl_ratio": "perplexity_ratio",
        "chi2_token": "chi2",
        "chi2_seq": "chi2_response",
    }
    theirs = case["outputs"].get("metrics", case["outputs"])
    for name, ours in names.items():
        if name in theirs:
            yield found[ours], theirs[name]


# The rest


def _masked(case: Case) -> Iterator[Pair]:
    values, mask, out = _tensor(case, "values"), _mask(case, "mask"), case["outputs"]
    yield masked.masked_mean(values, mask, epsilon=EPS), out["masked_mean"]
    yield masked.masked_mean(values, mask, 1, EPS), _double(out["masked_mean_axis_m1"])
    yield masked.masked_var(values, mask, epsilon=EPS), out["masked_var"]
    yield masked.masked_var(values, mask, unbiased=False, epsilon=EPS), out["masked_var_biased"]
    yield _within(masked.masked_whiten(values, mask, epsilon=EPS), out["masked_whiten"], mask)
    kept = masked.masked_whiten(values, mask, shift_mean=False, epsilon=EPS)
    yield _within(kept, out["masked_whiten_noshift"], mask)


def _entropy(case: Case) -> Iterator[Pair]:
    logits, labels = _tensor(case, "logits"), torch.tensor(case["inputs"]["labels"])
    flat, targets = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    for chunk in (None, 2):
        logprobs, entropy = token_logprobs(
            flat, targets, lambda hidden: hidden, temperature=1.0, entropy=True, chunk=chunk
        )
        yield logprobs, _double(case["outputs"]["logprobs"]).reshape(-1)
        yield entropy, _double(case["outputs"]["entropy"]).reshape(-1)


def _response_mask(case: Case) -> Iterator[Pair]:
    stop = case["params"]["eos_token"]
    found = masked.until_stop(_tensor(case, "response_id"), stop if isinstance(stop, list) else [stop])
    yield found.long(), torch.tensor(case["outputs"]["mask"])


def _balance(case: Case) -> Iterator[Pair]:
    """A balancer is as good as its fullest part: never fuller than theirs."""
    lengths, parts = case["inputs"]["seqlen_list"], case["params"]["k_partitions"]
    found = balance(lengths, parts, equal_counts=case["params"]["equal_size"])
    assert sorted(i for part in found for i in part) == list(range(len(lengths)))
    fullest = max(sum(lengths[i] for i in part) for part in found)
    yield min(fullest, case["outputs"]["max_sum"]), fullest


RUNNERS: Mapping[str, Callable[[Case], Iterator[Pair]]] = {
    "compute_gae_advantage_return": _gae,
    "compute_grpo_outcome_advantage": _by_group(grpo.group_normalize, grpo.Hyper(conventions="verl")),
    "compute_grpo_vectorized_outcome_advantage": _by_group(
        grpo.group_normalize, grpo.Hyper(conventions="verl")
    ),
    "compute_grpo_passk_outcome_advantage": _best,
    "compute_gdpo_outcome_advantage": _gdpo,
    "compute_gpg_outcome_advantage": _gpg,
    "compute_opo_outcome_advantage": _by_group(
        reinforce.baseline, reinforce.Hyper(baseline="length_weighted", conventions="verl")
    ),
    "compute_rloo_outcome_advantage": _by_group(rloo.leave_one_out, rloo.Hyper(conventions="verl")),
    "compute_rloo_vectorized_outcome_advantage": _by_group(rloo.leave_one_out, rloo.Hyper()),
    "compute_reinforce_plus_plus_baseline_outcome_advantage": _by_group(
        reinforce_plus_plus.group_center, reinforce_plus_plus.Hyper(baseline="group", conventions="verl")
    ),
    "compute_reinforce_plus_plus_outcome_advantage": _reinforce_plus_plus,
    "compute_remax_outcome_advantage": _remax,
    "agg_loss": _agg_loss,
    "policy_loss:vanilla": _policy_loss(ppo.ppo_policy_loss, ppo.Hyper()),
    "policy_loss:gspo": _policy_loss(gspo.gspo_policy_loss, gspo.Hyper()),
    "policy_loss:cispo": _policy_loss(cispo.cispo_policy_loss, cispo.Hyper()),
    "policy_loss:gpg": _policy_loss(reinforce.reinforce_policy_loss, reinforce.Hyper()),
    "policy_loss:geo_mean": _policy_loss(gmpo.gmpo_policy_loss, gmpo.Hyper(conventions="verl")),
    "policy_loss:sapo": _policy_loss(sapo.sapo_policy_loss, sapo.Hyper()),
    "compute_value_loss": _value_loss,
    "kl_penalty": _kl_penalty,
    "AdaptiveKLController": _controller,
    "FixedKLController": _controller,
    "compute_rewards": _compute_rewards,
    "apply_kl_penalty": _apply_kl_penalty,
    "compute_rollout_correction_weights": _importance,
    "compute_rollout_rejection_mask": _rejection,
    "compute_offpolicy_metrics": _offpolicy,
    "masked_mean,masked_var,masked_whiten": _masked,
    "entropy_from_logits,logprobs_from_logits": _entropy,
    "get_response_mask": _response_mask,
    "get_seqlen_balanced_partitions": _balance,
}
