"""Families that `check` lets be cut have what cutting takes in the installed Hugging Face library."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rpeg.sim.runnable import LAYERS, TENSORS


@pytest.mark.parametrize("family", sorted(LAYERS))
def test_families_are_cut_as_hugging_face_declares_them(family: str) -> None:
    config = AutoConfig.for_model(
        family, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8, pad_token_id=0
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    backbone = getattr(model, model.base_model_prefix)
    assert isinstance(backbone.norm, torch.nn.Module)
    attentions = [m for m in model.modules() if hasattr(m, "num_key_value_groups")]
    assert len(attentions) == 2
    declared = set((getattr(config, "base_model_tp_plan", None) or {}).values())
    by_columns_and_rows = {"colwise", "rowwise", "replicated_with_grad_allreduce"}
    assert (family in TENSORS) == bool(declared and declared <= by_columns_and_rows)
