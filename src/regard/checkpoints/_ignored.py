"""The fields of a `config.json` that change nothing in a forward pass: for every network, and for some.

Not here on purpose: `auto_map` (the forward pass is other code, which the repository brings along),
`quantization_config` and `adapters`. A checkpoint that has them is refused.
"""

from collections.abc import Mapping
from types import MappingProxyType

IGNORED_FIELDS: frozenset[str] = frozenset(
    {
        # where the file comes from, and what wrote it
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "dtype",
        "model_type",
        "name_or_path",
        "torch_dtype",
        "transformers.js_config",
        "transformers_version",
        # what a call returns, and in which of several equivalent ways it is computed
        "_attn_implementation",
        "_attn_implementation_autoset",
        "attn_implementation",
        "chunk_size_feed_forward",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "return_dict",
        "torchscript",
        "use_bfloat16",
        "use_cache",
        "use_return_dict",
        "xla_device",
        # how a model is trained; dropout probabilities are not here, because a network holds them
        "gradient_checkpointing",
        # each is read by the families that have it
        "initializer_factor",
        "initializer_range",
        # heads for tasks: how many labels there are is read by `num_labels`, their names by nobody
        "_num_labels",
        "classifier_dropout",
        "finetuning_task",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "sbert_ce_default_activation_function",
        "sentence_transformers",
        "task_specific_params",
        "tokenizer_class",
        # special tokens; pad_token_id is not here, because some families count positions from it
        "bos_token_id",
        "decoder_start_token_id",
        "eos_token_id",
        "eos_token_ids",
        "prefix",
        "sep_token_id",
        # how text is generated
        "bad_words_ids",
        "begin_suppress_tokens",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "length_penalty",
        "max_length",
        "max_new_tokens",
        "min_length",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_scores",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict_in_generate",
        "suppress_tokens",
        "temperature",
        "tf_legacy_loss",
        "top_k",
        "top_p",
        "typical_p",
    }
)
"""Fields that change nothing in any network, whatever their value."""

IGNORED_FIELDS_AT: Mapping[str, object] = MappingProxyType(
    {
        "add_cross_attention": False,
        "cross_attention_hidden_size": None,
        "is_decoder": False,
        "is_encoder_decoder": False,
        "pruned_heads": {},
        "tie_encoder_decoder": False,
    }
)
"""Fields that change nothing at this value, and the network at any other; a family may still read them."""
