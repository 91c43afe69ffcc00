"""The card of vectors that were trained."""

from pathlib import Path

import numpy as np

from regard._version import __version__
from regard.training._configuration import as_toml
from regard.training._word_settings import WordSettings
from regard.training.words._corpus import Corpus


def card_of(settings: WordSettings, folder: Path, corpus: Corpus) -> str:
    """The README.md beside the vectors.

    Args:
        settings: of the run.
        folder: of the run, which gives its name.
        corpus: what it learned from.
    """
    files = ", ".join(Path(name).name for name in settings.data.train)
    what = f"{settings.architecture} of {settings.objective}"
    return f"""---
tags: ["regard", "{settings.objective}"]
---

# {folder.resolve().name}

{len(corpus.words):,} words with static embeddings of {settings.size} numbers, by the {what}, learned from
{len(corpus.ids):,} words of {files} in {settings.epochs} epochs.

Add the licence, the language and the limits of the texts before you share them.

## How to load them

```python
from regard.words import WordVectors

vectors = WordVectors.open("FOLDER/vectors.safetensors")
```

```python
from gensim.models import KeyedVectors

vectors = KeyedVectors.load_word2vec_format("FOLDER/vectors.txt")
```

## Settings

```toml
{as_toml(settings).rstrip()}
```

regard {__version__}, numpy {np.__version__}.
"""
