"""From a text to tokens, each with its word and its place in the text.

Words come from the text by Unicode's word boundaries, or are given; tokens come from the model's own files.
Every span counts code points of the original text: `text[start:end]` is what a token or a word was made of.
"""

from regard.text._bulk import Aligned, Bulk, Frame
from regard.text._chat import Chat, template_of
from regard.text._encoding import Encoding, read_back
from regard.text._folder import doubt
from regard.text._shown import is_part
from regard.text._special import SpecialIds
from regard.text._tokenizer import Tokenizer
from regard.text._tokens import Token, Word
from regard.text._training import TokenizerKind, train_tokenizer, write_tokenizer
from regard.text._words import Words, each_text, fold, split_words

__all__ = [
    "Chat",
    "Encoding",
    "SpecialIds",
    "Token",
    "Tokenizer",
    "Word",
    "Words",
    "train_tokenizer",
    "write_tokenizer",
]
