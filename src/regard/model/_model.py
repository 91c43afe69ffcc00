"""The model that `regard.load` and `regard.lens` return: where all capabilities meet."""

from regard.model._embedding import Embedding
from regard.model._interventions import Interventions
from regard.model._pruning import Pruning
from regard.model._writing import Writing


class Model(Interventions, Pruning, Embedding, Writing):
    """A network with its tokenizer, as `regard.load` and `regard.lens` return it.

    `model.trace(text)` records a run, `model.embed` makes vectors, `model.edited` changes what the network
    computes, and `model.generate` writes. `model(token_ids)` runs the network itself.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> model
        Model('sentence-transformers/all-MiniLM-L6-v2', bert, 6 layers x 12 heads, d_model 384)
        >>> model.trace("time flies like an arrow").token_ids
        [101, 2051, 10029, 2066, 2019, 8612, 102]
    """
