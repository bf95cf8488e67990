"""Families of models: one function each from a Hugging Face config to an `Architecture`, found by `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rpeg.architecture.families import dense, gpt, hybrid, latent, mixtures
from rpeg.architecture.families.config import Config
from rpeg.architecture.model import Architecture

FAMILIES: Mapping[str, Callable[[Config], Architecture]] = {
    **dense.FAMILIES,
    **gpt.FAMILIES,
    **hybrid.FAMILIES,
    **latent.FAMILIES,
    **mixtures.FAMILIES,
    # the text parts of models that also see
    "qwen2_5_vl_text": dense.qwen2,
    "qwen2_vl_text": dense.qwen2,
    "qwen3_vl_moe_text": mixtures.qwen3_moe,
    "qwen3_vl_text": dense.qwen3,
}

__all__ = ["FAMILIES", "Config"]
