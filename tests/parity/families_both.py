"""The encoder-decoders under test."""

import transformers as hf

from parity.families_entry import MAX_LEN, PAD, VOCAB, FamilyUnderTest, variant

T5 = FamilyUnderTest(
    # Scores are not scaled. transformers always ties the head (unless both matrices are stored and differ),
    # and takes tie_word_embeddings=false to mean that the decoder's output is not scaled by d_model ** -0.5.
    # Cross-attention has no bias. Distances fall into buckets in float32, whatever the model's type.
    name="t5",
    config=hf.T5Config,
    fields={
        "vocab_size": VOCAB,
        "d_model": 29,
        "d_kv": 7,
        "d_ff": 37,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 3,
        "relative_attention_num_buckets": 10,
        "relative_attention_max_distance": 17,
        "layer_norm_epsilon": 1e-3,
        "dropout_rate": 0.3,
        "feed_forward_proj": "relu",
        "pad_token_id": PAD,
    },
    classes={
        "base": hf.T5Model,
        "language-model": hf.T5ForConditionalGeneration,
        "sequence": hf.T5ForSequenceClassification,
        "encoder": hf.T5EncoderModel,
    },
    shape="encoder-decoder",
    max_len=None,
    gain=0.7,
    can_untie=False,
    features=frozenset({"relative-bias"}),
    head_features=frozenset({"scale"}),
)
_BART = {
    "vocab_size": VOCAB,
    "d_model": 2 * 3 * 7,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 41,
    "max_position_embeddings": MAX_LEN,
    "scale_embedding": True,
    "dropout": 0.3,
    "attention_dropout": 0.4,
    "activation_dropout": 0.2,
    "pad_token_id": PAD,
    "eos_token_id": 3,
}
BART = FamilyUnderTest(
    # Positions start at row 2 of a table of max_position_embeddings + 2. The norms' epsilon is 1e-5, and no
    # field. The head has a bias that is a buffer (final_logits_bias), and is stored. Without
    # tie_word_embeddings both stacks and `shared` have tables of their own, see test_families.py.
    # The classifier reads the decoder at the encoder's last eos_token_id, so both have one length.
    name="bart",
    config=hf.BartConfig,
    fields=_BART,
    classes={
        "base": hf.BartModel,
        "language-model": hf.BartForConditionalGeneration,
        "sequence": hf.BartForSequenceClassification,
    },
    shape="encoder-decoder",
    activation="activation_function",
    features=frozenset({"embedding-scale"}),
    can_untie=False,
    head_features=frozenset({"bias"}),
)
MBART = variant(
    BART,
    id="mbart",
    name="mbart",
    config=hf.MBartConfig,
    classes={
        "base": hf.MBartModel,
        "language-model": hf.MBartForConditionalGeneration,
        "sequence": hf.MBartForSequenceClassification,
    },
)
MARIAN = FamilyUnderTest(
    # Sinusoids: all sines, then all cosines, worked out in double precision and rounded to single.
    # MarianModel stores them, MarianMTModel does not. Untied as BART.
    name="marian",
    config=hf.MarianConfig,
    fields=_BART,
    classes={"base": hf.MarianModel, "language-model": hf.MarianMTModel},
    shape="encoder-decoder",
    activation="activation_function",
    features=frozenset({"embedding-scale"}),
    can_untie=False,
    head_features=frozenset({"bias"}),
)

ENCODER_DECODERS = (
    T5,
    BART,
    MBART,
    MARIAN,
    # FLAN and v1.1: a gate, a head of its own, nothing scaled.
    variant(
        T5,
        id="t5-gated-untied",
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        untie=True,
        head_features=frozenset(),
    ),
    variant(BART, id="bart-unscaled", scale_embedding=False, features=frozenset()),
)
