"""The encoders under test."""

from typing import Any

import transformers as hf

from parity.families_entry import MAX_LEN, PAD, TYPES, VOCAB, FamilyUnderTest, heads, variant

_DROPOUT = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.4}
_ENCODER: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 3 * 7,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 37,
    "max_position_embeddings": MAX_LEN,
    "layer_norm_eps": 1e-3,
    "pad_token_id": PAD,
    **_DROPOUT,
}

BERT = FamilyUnderTest(
    name="bert",
    config=hf.BertConfig,
    fields={**_ENCODER, "type_vocab_size": TYPES},
    classes=heads("Bert"),
    activation="hidden_act",
)
DISTILBERT = FamilyUnderTest(
    # No field for the norm's epsilon: it is 1e-12.
    name="distilbert",
    config=hf.DistilBertConfig,
    fields={
        "vocab_size": VOCAB,
        "dim": 3 * 7,
        "n_layers": 2,
        "n_heads": 3,
        "hidden_dim": 37,
        "max_position_embeddings": MAX_LEN,
        "dropout": 0.3,
        "attention_dropout": 0.4,
        "pad_token_id": PAD,
    },
    classes=heads("DistilBert"),
    activation="activation",
)
ROBERTA = FamilyUnderTest(
    # Positions count tokens on from pad_token_id, by the ids and not by the mask: the table has
    # max_position_embeddings rows for max_position_embeddings - pad_token_id - 1 tokens.
    name="roberta",
    config=hf.RobertaConfig,
    fields={**_ENCODER, "type_vocab_size": TYPES, "max_position_embeddings": MAX_LEN + PAD + 1},
    classes=heads("Roberta"),
    activation="hidden_act",
    first_position=PAD + 1,
)
XLM_ROBERTA = variant(
    ROBERTA, id="xlm-roberta", name="xlm-roberta", config=hf.XLMRobertaConfig, classes=heads("XLMRoberta")
)
ELECTRA = FamilyUnderTest(
    # Also where embedding_size = hidden_size there is no projection (embeddings_project), see the variant.
    # The masked-lm head has a gelu of its own, whatever hidden_act says; the sequence head too.
    name="electra",
    config=hf.ElectraConfig,
    fields={**_ENCODER, "embedding_size": 17, "type_vocab_size": TYPES},
    classes={
        **heads("Electra"),
        "replaced": hf.ElectraForPreTraining,
        "questions": hf.ElectraForQuestionAnswering,
    },
    left_out=("questions",),
    activation="hidden_act",
)
MPNET = FamilyUnderTest(
    # Positions as RoBERTa's, from 2 on whatever pad_token_id says (the class has padding_idx = 1 fixed), and
    # T5's relative bias besides; no token types. relative_attention_num_buckets gives the rows of the table,
    # but distances always fall into 32 buckets, up to 128: `compute_position_bias` does not pass it on.
    name="mpnet",
    config=hf.MPNetConfig,
    fields={
        **_ENCODER,
        "max_position_embeddings": MAX_LEN + 2,
        "relative_attention_num_buckets": 37,
        "pad_token_id": 1,
    },
    classes=heads("MPNet"),
    activation="hidden_act",
    first_position=2,
    features=frozenset({"relative-bias"}),
)
MODERNBERT = FamilyUnderTest(
    # local_attention is the whole width: local_attention // 2 to either side, the ends included. Layer 0 has
    # no norm before its attention. q and k are rotated in float32, whatever the model's type.
    name="modernbert",
    config=hf.ModernBertConfig,
    fields={
        "vocab_size": VOCAB,
        "hidden_size": 3 * 14,
        "num_hidden_layers": 5,
        "num_attention_heads": 3,
        "intermediate_size": 37,
        "max_position_embeddings": MAX_LEN,
        "norm_eps": 1e-3,
        "pad_token_id": PAD,
        "attention_dropout": 0.3,
        "embedding_dropout": 0.2,
        "mlp_dropout": 0.4,
        "local_attention": 6,
        "layer_types": ["full_attention", *["sliding_attention"] * 2, "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 101.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 11.0},
        },
    },
    classes=heads("ModernBert"),
    activation="hidden_activation",
    gain=1.0,
    features=frozenset({"rotary", "window"}),
)
_DEBERTA = {
    **_ENCODER,
    "type_vocab_size": TYPES,
    "relative_attention": True,
    "max_relative_positions": 23,
    "position_buckets": 11,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "pooler_hidden_act": "relu",
    "pooler_dropout": 0.2,
}
DEBERTA_V3 = FamilyUnderTest(
    # The mask is real x real: a padded query sees nothing either. The embeddings are set to zero at padding,
    # after their norm. Scores are divided by sqrt(head_dim * (1 + number of pos_att_type)), a float32 number.
    # Without position_biased_input there is no table of positions. With share_att_key the relative table goes
    # through q and k themselves. MaskedLM is legacy by default, and its `embedding_size` need not be stored.
    name="deberta-v2",
    config=hf.DebertaV2Config,
    fields=_DEBERTA,
    classes=heads("DebertaV2"),
    activation="hidden_act",
    features=frozenset({"relative-bias"}),
)

ENCODERS = (
    BERT,
    DISTILBERT,
    ROBERTA,
    XLM_ROBERTA,
    ELECTRA,
    MPNET,
    MODERNBERT,
    DEBERTA_V3,
    variant(DISTILBERT, id="distilbert-sinusoidal", sinusoidal_pos_embds=True),
    variant(ELECTRA, id="electra-one-size", embedding_size=21),
    variant(
        MODERNBERT,
        id="modernbert-biases",
        classes=MODERNBERT.classes,
        attention_bias=True,
        mlp_bias=True,
        norm_bias=True,
        classifier_bias=True,
        decoder_bias=False,
        classifier_pooling="mean",
        classifier_activation="relu",
    ),
    # v2: no shared projections, absolute positions besides, no norm on the relative table, no buckets; and
    # embeddings of another size, projected before their norm.
    variant(
        DEBERTA_V3,
        id="deberta-v2-unshared",
        classes=DEBERTA_V3.classes,
        share_att_key=False,
        embedding_size=17,
        norm_rel_ebd="none",
        position_buckets=-1,
        max_relative_positions=-1,
        position_biased_input=True,
        type_vocab_size=0,
        pos_att_type="c2p|p2c",
    ),
    variant(DEBERTA_V3, id="deberta-v2-c2p", share_att_key=False, pos_att_type=["c2p"]),
    # The convolution sees the neighbours across every mask.
    variant(DEBERTA_V3, id="deberta-v2-conv", conv_kernel_size=3, conv_act="gelu", packs=False),
    # Its output is the table of embeddings, whatever tie_word_embeddings says.
    variant(DEBERTA_V3, id="deberta-v2-not-legacy", legacy=False, embedding_size=21, can_untie=False),
)
