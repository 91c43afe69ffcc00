"""BERT (Devlin et al. 2019) and the many encoders that share its shape, MiniLM among them."""

from regard.models.bert._build import build
from regard.models.bert._config import BertConfig
from regard.models.bert._hf import BERT_KEYS

__all__ = ["BERT_KEYS", "BertConfig", "build"]
