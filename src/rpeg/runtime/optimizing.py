"""How a model is updated: from the job's section to the trainer's values."""

from __future__ import annotations

from typing import Any

from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.job import Job
from rpeg.plan import Plan


def optimizer_config(job: Job, plan: Plan, model: str) -> OptimizerConfig:
    """The job's optimizer section for one model: a critic (a model without an lm head) may have its own rate."""
    o = job.optimizer
    lr = o.lr if "lm" in plan.graph.model(model).heads or o.critic_lr is None else o.critic_lr
    updates_per_step = plan.workload.minibatches * plan.workload.epochs
    options: dict[str, Any] = {
        "lr": lr,
        "betas": o.betas,
        "eps": o.eps,
        "weight_decay": o.weight_decay,
        "max_grad_norm": o.max_grad_norm,
        "schedule": o.schedule,
        "warmup_steps": o.warmup_steps * updates_per_step,
        "total_steps": job.steps * updates_per_step,
    }
    return OptimizerConfig(**options)
