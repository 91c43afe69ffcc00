"""The files of a tokenizer, by the names that checkpoints give them."""

TOKENIZER = "tokenizer.json"
"""All of a tokenizer in one file, as the `tokenizers` library writes it."""

TEMPLATE, TEMPLATES = "chat_template.jinja", "chat_templates"
"""A chat template, and the folder of several with names."""

SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", TEMPLATE)
"""What stands beside a tokenizer in any form."""

SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")
"""The names of a SentencePiece model, the first that a folder has being the one that counts."""

MARIAN = ("source.spm", "target.spm", "vocab.json")
"""Marian's two SentencePiece models and its table of ids."""

TARGET_TABLE = "target_vocab.json"
"""Marian's table of the target language, where it has one of its own."""

VOCABULARIES = (("vocab.txt",), ("vocab.json", "merges.txt"), *((name,) for name in SENTENCEPIECE), MARIAN)
"""From what a tokenizer is built where there is no `tokenizer.json`; any one line is enough."""

PARTS = tuple(dict.fromkeys([*(file for files in VOCABULARIES for file in files), TARGET_TABLE]))
"""All of these files."""
