"""The model itself in a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard import tracing
from regard.embedding import read_sentence_settings
from regard.model._held import Held

if TYPE_CHECKING:
    from regard.views import Page


class Live(Held):
    """A model that leaves Python."""

    def live_page(self, text: str, pair: str | None = None) -> Page:
        """Make a page that holds the model itself: type any sentence, offline, and every view follows.

        On the page you can switch off heads and drag weights. It says which words' contextual embeddings
        move, how alike two sentences are, and what a language-model head expects. Its weights have 8 bits;
        regard measures over some sentences how much that changes, and states it in `live_difference` and on
        the page.

        Args:
            text: the first sentence on the page, with Python's own numbers.
            pair: a second text, which the model reads with the first.

        Returns:
            The page: `model.live_page("...").write("live.html")`. With the default model it takes 35 MB.

        Raises:
            InputError: the model is not a BERT, DistilBERT or GPT-2, or has edits; or as `trace`.

        Example:
            >>> import regard
            >>> page = regard.load().live_page("time flies like an arrow")
            >>> len(page.html) < 40e6, page.live_difference < 0.05
            (True, True)
        """
        settings = read_sentence_settings(self.loaded.source.folder)
        return tracing.live_page(self.loaded, text, pair, pooling=settings.plain_pooling)
