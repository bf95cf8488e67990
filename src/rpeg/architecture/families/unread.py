"""Fields of a config that no family function asked for: which would make costs wrong, which deserve a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rpeg.architecture.families.config import Config
from rpeg.errors import InputError
from rpeg.fields import shown

# Fields that change shapes or work in some family. Where a family does not ask for one and it is switched on, the
# model is not what its model_type says.
_SHAPING_WORDS = """
attention_bias attention_chunk_size attention_k_eq_v attention_output_gate attn_output_gate block_configs
compress_ratios conv_kernel decoder_sparse_step dense_intermediate_size enable_moe_block expand
expert_intermediate_size experts_per_token first_k_dense_replace full_attention_interval global_head_dim hc_mult
head_dim hidden_size_per_layer_input hybrid_layer_pattern hybrid_override_pattern index_head_dim index_n_heads
index_topk interleave_moe_layer_step intermediate_size intermediate_size_mlp kv_lora_rank layer_types
layers_block_type linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads
linear_value_head_dim mamba_head_dim mamba_num_heads mlp_bias mlp_layer_types mlp_only_layers
moe_intermediate_size moe_latent_size moe_layer_freq moe_layers moe_shared_expert_intermediate_size
n_routed_experts n_shared_experts num_attention_heads num_experts num_experts_per_tok num_global_key_value_heads
num_hash_layers num_hidden_layers num_key_value_heads num_key_value_heads_per_layer num_kv_shared_layers
num_local_experts o_groups o_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim qkv_bias
routed_expert_hidden_size shared_expert_intermediate_size shared_intermediate_size sliding_window ssm_state_size
swa_head_dim swa_num_attention_heads swa_num_key_value_heads top_k_experts use_bias use_double_wide_mlp
use_qk_norm v_head_dim word_embed_proj_dim
"""
SHAPING = frozenset(_SHAPING_WORDS.split())

# Layers that predict further tokens: trained beside the model and drafting for it, no part of it.
_PREDICTION_WORDS = """
mtp_hybrid_override_pattern mtp_layers_block_type mtp_num_hidden_layers mtp_transformer_layers num_mtp_modules
num_nextn_predict_layers use_mtp
"""
_PREDICTION = frozenset(_PREDICTION_WORDS.split())

# Fields that change numbers, not shapes: scales, losses, routing rules, bookkeeping, how text is made.
_HARMLESS_WORDS = """
_attn_implementation _attn_implementation_autoset _commit_hash _name_or_path _remove_final_layer_norm
add_cross_attention alibi apply_residual_connection_post_layernorm architectures attention_softmax_in_fp32
attn_config attn_logit_softcapping attn_pdrop attn_scale attn_temperature_tuning auto_map aux_loss_alpha
bad_words_ids bias_dropout_fusion cache_implementation chunk_size chunk_size_feed_forward clip_qkv
cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype early_stopping emb_pdrop
embd_pdrop embedding_fraction embedding_multiplier encoder_no_repeat_ngram_size ep_size
exponential_decay_length_penalty final_logit_softcapping finetuning_task floor_scale for_llm_input_layernorm
gradient_checkpointing hidden_act id2label ignore_index indexer_rope_interleave init_device
initial_context_length initializer_range is_decoder is_encoder_decoder keys_to_ignore_at_inference label2id
language_model_only layer_norm_epsilon layerdrop length_penalty logit_scale logits_scaling mamba_hidden_act
mamba_proj_bias mamba_ssm_cache_dtype mamba_ssm_dtype masked_softmax_fusion max_length max_window_layers
min_length mlp_hidden_act model_name model_type moe_router_dtype moe_shared_expert_overlap
mtp_use_dedicated_embeddings n_ctx n_group no_bias no_repeat_ngram_size norm_topk_prob norm_type num_beam_groups
num_beams num_labels num_ln_in_parallel_attn num_logits_to_keep num_return_sequences offset_alibi
original_max_position_embeddings output_attentions output_gate_type output_hidden_states output_router_logits
output_scores param_init_fn partial_rotary_factor prefix pretraining_tp problem_type pruned_heads
quantization_config query_pre_attn_scalar remove_invalid_values reorder_and_upcast_attn repetition_penalty
rescale_prenorm_residual resid_mlp_dropout resid_pdrop residual_in_fp32 residual_multiplier return_dict
return_dict_in_generate rotary_dim rotary_emb_base rotary_pct routed_scaling_factor router_aux_loss_coef
router_jitter_noise scale_attn scale_attn_by_inverse_layer_idx scale_attn_weights scale_embedding scoring_func
seq_aux skip_bias_add skip_bias_add_qkv slow_but_exact summary_activation summary_first_dropout
summary_proj_to_labels summary_type summary_use_proj suppress_tokens swiglu_limit task_specific_params
temperature text_config tf_legacy_loss tie_encoder_decoder tie_weights_ time_step_floor time_step_limit
time_step_max time_step_min tokenizer_class top_k top_p topk_group topk_method torch_dtype torchscript
transformers_version typical_p use_bfloat16 use_bidirectional_attention use_cache use_conv_bias
use_mamba_kernels use_parallel_residual use_routing_bias verbose
attention_multiplier no_rope_layers no_rope_layer_interval dropout swiglu_alpha vision_config vocab_padding z_loss
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
_HARMLESS_ENDINGS = (
    "_token_id",
    "_token_ids",
    "_dropout",
    "_eps",
    "_epsilon",
    "_range",
    "_std",
    "_token_index",
)
_HARMLESS_STARTS = ("rope_", "init_", "initializer_", "image_", "video_", "audio_", "vision_", "summary_")


def refuse_unread(config: Config) -> None:
    """InputError naming a field that is switched on, shapes models, and has no place in this family."""
    for key, value in _unread(config):
        if key in SHAPING:
            raise InputError(
                f"the config of {config.name} has {key} = {shown(value)}, which is not known for model_type "
                f"'{config.data.get('model_type')}': costs would be wrong. Describe the model by a model_type that "
                f"has such a part, or remove the field if the model does not use it"
            )


def notes(config: Config) -> tuple[str, ...]:
    """What a reader of the costs should know about fields that are not part of the `Architecture`."""
    lines = []
    for key, value in _unread(config):
        if key in _PREDICTION:
            lines.append(f"{key} = {shown(value)}: layers that predict further tokens are not counted")
        elif key not in SHAPING and not _harmless(key) and not isinstance(value, str):
            lines.append(f"{key} = {shown(value)} is not known; if it changes shapes, costs are wrong")
    return tuple(lines)


def _unread(config: Config) -> Iterator[tuple[str, Any]]:
    """Fields that nobody asked for and that are switched on."""
    for key, value in config.data.items():
        if key in config.asked or _off(value):
            continue
        yield key, value


def _off(value: Any) -> bool:
    """None, False, 0, empty, or a list of layers that are all ordinary."""
    if isinstance(value, list) and value and all(entry in ("full", "full_attention") for entry in value):
        return True
    return not value


def _harmless(key: str) -> bool:
    return key in _HARMLESS or key.endswith(_HARMLESS_ENDINGS) or key.startswith(_HARMLESS_STARTS)
