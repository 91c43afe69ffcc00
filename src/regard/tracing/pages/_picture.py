"""From a trace to the picture of one head."""

from regard.core.errors import InputError
from regard.models import Kind
from regard.text import Encoding
from regard.tracing.record import Selector, Trace, chosen_of
from regard.views import HeadPicture, PictureForm


def plot(
    self: Trace,
    layer: int,
    head: int,
    *,
    kind: "Kind | None" = None,
    query: Selector | None = None,
    key: Selector | None = None,
    form: PictureForm = "lines",
    specials: bool = True,
    least: float = 0.0,
) -> HeadPicture:
    """Draw one head as a picture for a paper; a notebook displays it.

    Args:
        layer, head, kind, query, key: as in `weights`.
        form: "lines", tokens left and right with a line for each weight, or "map", a heat map.
        specials: whether to draw the special tokens too; weights are not rescaled without them.
        least: the smallest weight to draw.

    Returns:
        The picture: `.write("head.svg")`, or .png and .pdf through matplotlib; `.svg()` is its text.

    Raises:
        InputError: as `weights`; or more tokens than can be read.

    Example:
        >>> import regard
        >>> picture = regard.load().trace("time flies like an arrow").plot(3, 5, form="map")
        >>> picture.title
        'sentence-transformers/all-MiniLM-L6-v2: layer 3, head 5'
    """
    kind = self.kind(kind)
    layer = self.layer_index(layer, kind)
    head = self.head_index(head, kind, layer)
    of_queries, of_keys = self.sides(kind)
    # Of a long text this is the whole matrix: the sides are chosen, and their number checked, first.
    rows, queries = _side(of_queries.encoding, query, specials)
    columns, keys = _side(of_keys.encoding, key, specials)
    HeadPicture.check_size(len(queries), len(keys))
    weights = self.weights(layer, head, kind=kind, query=query, key=key).double().numpy()
    if specials and key is None and weights.shape[1] > len(of_keys.encoding.tokens):
        columns, keys = [*columns, weights.shape[1] - 1], (*keys, "sink")
    said = "" if len(self.kinds) == 1 else f"{kind}, "
    return HeadPicture(
        weights=weights[rows][:, columns],
        queries=queries,
        keys=keys,
        title=f"{self.model}: {said}layer {layer}, head {head}",
        form=form,
        least=least,
    )


def _side(encoding: Encoding, selector: Selector | None, specials: bool) -> tuple[list[int], tuple[str, ...]]:
    """The tokens of one side that are drawn: their places, of all that were asked for, and their names."""
    tokens = encoding.tokens
    chosen = chosen_of("query or key", encoding, selector)
    kept = [(place, token) for place, token in enumerate(chosen) if specials or not tokens[token].special]
    if not kept:
        raise InputError("specials must be True where the model's own tokens are all that is asked for.")
    # WordPiece writes a piece that goes on as "##ing", which people read; of other signs for it the surface.
    names = [tokens[at].text if tokens[at].text.startswith("##") else tokens[at].surface for _, at in kept]
    # Of a pair each says whose it is, by the letters that the page has for them.
    if any(token.sequence == 1 for token in tokens):
        of = {0: " (A)", 1: " (B)", None: ""}
        names = [name + of[tokens[at].sequence] for name, (_, at) in zip(names, kept, strict=True)]
    return [place for place, _ in kept], tuple(names)
