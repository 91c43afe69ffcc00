"""The concordance: what can be asked of an index."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from regard.concordance import _senses, _teach
from regard.concordance._anyword import AnyWord, make_any
from regard.concordance._counts import Counts, collocates, counted, keywords, size_of
from regard.concordance._drift import Drift, doubt, drift, parts_of, units_of
from regard.concordance._lines import Line, Lines, scored
from regard.concordance._meaning import Calibration, reasons, refined, shipped, span_of, words_in
from regard.concordance._query import Spelling, with_apostrophe
from regard.concordance._senses import Senses
from regard.concordance._store import Store
from regard.concordance._uses import Found, places, select, single, sort_order
from regard.concordance._vectors import UsageEmbedder, VectorCache, Vectors, span_at
from regard.concordance._where import fields_of, save_subcorpus, values_of
from regard.core.arguments import one_of, path_of, several, typed, whole
from regard.core.errors import InputError
from regard.core.progress import OnProgress


class Concordance:
    """An index of a corpus, by words and by meaning.

    Args:
        path: the folder of an index, as `regard index` or `build_index` makes it.
        model: a `regard.Model`, its name or its folder; None for that of the index's vectors, or the default.
        layers: those whose mean is taken; None for those of the index's vectors, or the last.
        loading: entered while a model is loaded, which is when vectors are first asked for.

    Raises:
        InputError: there is no index, or it is of another version, not finished, or of another model.

    Example:
        >>> from regard import Concordance
        >>> import tempfile
        >>> from pathlib import Path
        >>> from regard.concordance import build_index
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text(
        ...     "They fished from the bank of a river.\\nThe bank lent money.\\nReeds grow on the bank.\\n"
        ... )
        >>> _ = build_index([folder / "a.txt"], folder / "index")
        >>> found = Concordance(folder / "index").find("bank", sentence="She sat on the bank of the stream.")
        >>> [line.place.where for line in found]
        ['line 1', 'line 3', 'line 2']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: Any = None,
        *,
        layers: Sequence[int] | None = None,
        loading: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._store = Store(path_of("path", path))
        self._store.check_finished()
        self._model, self._layers, self._loading = model, layers, loading or nullcontext()

    def __repr__(self) -> str:
        return f"Concordance({str(self._store.folder)!r}, {self.size})"

    @property
    def size(self) -> str:
        """How large the corpus is, in words: "57,340 texts, 1,161,192 words"."""
        texts, words = self._store.rows("SELECT count(*), (SELECT sum(words) FROM doc) FROM text")[0]
        return f"{texts:,} texts, {words:,} words"

    @property
    def fields(self) -> list[str]:
        """What is known of texts, beside their dates, by the names that conditions have."""
        return fields_of(self._store)

    @property
    def model_name(self) -> str | None:
        """The name of the model of the vectors that the index has; None without any."""
        name: str | None = self._meaning.get("model")
        return name

    @property
    def _meaning(self) -> dict[str, Any]:
        return self._store.manifest.get("meaning") or {}

    def fits(self, model: Any) -> bool:
        """Whether the vectors that the index has, if any, are those of a `regard.Model`."""
        return not self._meaning or self._meaning["mark"] == model.loaded.mark()

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """A context in which each query of the index must end in time, for what strangers ask: an InputError
        where it does not.
        """
        return self._store.within(seconds)

    @cached_property
    def vectors(self) -> VectorCache:
        """The vectors of uses, of which those that are missing are computed with the model."""
        from regard.checkpoints import DEFAULT_MODEL
        from regard.foreign import load

        # The model of the vectors, unless another one is named.
        model = self._meaning.get("model") if self._model is None else self._model
        if model is None or isinstance(model, str | os.PathLike):
            with self._loading:
                # Loaded now: lines without meaning need no model.
                model = load(DEFAULT_MODEL if model is None else model)
        layers = self._meaning.get("layers") if self._layers is None else self._layers
        return VectorCache(self._store, UsageEmbedder(getattr(model, "loaded", model), layers))

    @cached_property
    def calibration(self) -> Calibration | None:
        """What a likeness says of senses: as `regard tune-layer` left it, or as regard ships it."""
        # The user's own calibration before regard's.
        own = self._store.manifest.get("calibration")
        if own is None:
            return shipped(self.vectors.embed)
        return Calibration(**own | {"unsure": tuple(own["unsure"])})

    def find(
        self,
        word: str | None = None,
        *,
        sentence: str | None = None,
        where: Sequence[str] = (),
        k: int | None = 20,
        sort: Sequence[str] = (),
        sample: int | None = None,
        seed: int = 0,
        more: Sequence[int] = (),
        less: Sequence[int] = (),
        why: bool = False,
        any_word: bool = False,
        case: bool = False,
        diacritics: bool = True,
        progress: OnProgress = None,
    ) -> Lines:
        """The uses of a word: as they come, sorted, or those first that mean what it means in a sentence.

        Args:
            word: a word in any case, or a lemma that the corpus has. `*` stands for any characters, `?` for
                one ("bank*"), `a|b` for either, and /a regular expression/ for a form. Several in a row are a
                phrase ("the bank* of"). What has [ ] or begins with a quotation mark is CQL. None: the one
                that the sentence marks.
            sentence: where it means what is looked for. One that stands there twice is marked: "*bank*".
            where: conditions, such as "genre=news", "date>=1990", "text~river"; all must hold.
            k: the most lines; None for all.
            sort: by the words around: "L1" is the one before, "R2" the second after, "node" the word itself.
            sample: so many uses at random, before anything else.
            seed: of the sample.
            more, less: numbers of uses (`Line.place.use`) that are what is looked for, and that are not.
            why: whether each line tells which words around it make it like the sentence.
            any_word: the other words that are used so, in place of this one; `embed_all` comes before. A word
                is left out in all its forms, as far as the corpus has lemmas. No probabilities: those are of
                two uses of one word.
            case: whether capitals must be as they are given.
            diacritics: whether these must be.
            progress: called with (done, total) while vectors are computed.

        Returns:
            The lines, with a probability that the sense is the same where the model is calibrated.

        Raises:
            InputError: a word, a condition or a number that is none of the corpus's.
        """
        k = None if k is None else whole("k", k, least=1)
        sample = None if sample is None else whole("sample", sample, least=1)
        whole("seed", seed, least=0)
        # Numbers of uses must be of this corpus before anything is looked up.
        for name, uses in (("more", more), ("less", less)):
            for use in several(name, uses, "numbers of uses"):
                whole(name, use, least=0, most=len(self._store.tokens) - 1)
        # A word in a sentence is found as the corpus cuts words.
        span = None if sentence is None else span_of(sentence, word, partial(words_in, self._store))
        if word is None:
            if span is None:
                raise InputError("word must be given, or a sentence in which it is marked.")
            word = span.text[span.start : span.stop]
        # A meaning is asked for by a sentence, or by examples.
        by_meaning = span is not None or len(more) > 0
        if any_word:
            # Other words are ranked by likeness alone.
            if sort or sample is not None or k is None:
                raise InputError("any_word goes with a number k, and without sort and sample.")
            if not by_meaning:
                raise InputError("any_word goes with a sentence, or with more.")
            # Only the vectors of the examples are needed, whatever their words are.
            examples = single(sorted({*more, *less}))
            query = self._query(span, examples, self.vectors.vectors_of(examples), more, less)
            others, total = AnyWord(self._store).find(query, word, where, k)
            lines = self._ranked(others, self.vectors.vectors_of(others), query, None, k, why=why)
            return Lines(lines, total, "other words that are used so")
        spelling = Spelling(case, diacritics)
        hits = select(self._store, word, where, spelling=spelling, sample=sample, seed=seed)
        total = len(hits.uses)
        # A rate is among all words under the same conditions; of a sample it means nothing.
        rate = None if sample is not None else 1e6 * total / size_of(self._store, where)
        if by_meaning:
            if sort:
                raise InputError("sort does not go with a sentence, by whose meaning lines are ranked.")
            _examples(hits, more, less)  # before anything is computed
            hits, vectors, left_out = self.vectors.with_vectors(hits, progress)
            query = self._query(span, hits, vectors, more, less)
            lines = self._ranked(hits, vectors, query, self.calibration, k, why=why)
            about = "; ".join(filter(None, ("the likest in meaning first", left_out)))
            return Lines(lines, total, about, rate)
        # Both only say something about a ranking.
        if less or why:
            raise InputError("less and why go with a sentence, or with more.")
        # Without keys the order is that of the corpus.
        order = sort_order(self._store, hits, several("sort", sort, "keys")) if sort else np.arange(total)
        about = f"sorted by {', '.join(sort)}" if sort else "in the order of the corpus"
        # Forms with an apostrophe are words of their own to some corpora: say so.
        if stands := with_apostrophe(self._store, word):
            about += f"; without {stands}"
        return Lines(self._lines(hits.at(order[:k])), total, about, rate)

    def _ranked(
        self,
        found: Found,
        vectors: Vectors,
        query: Vectors,
        said: Calibration | None,
        k: int | None,
        *,
        why: bool,
    ) -> tuple[Line, ...]:
        """Lines by their likeness, the likest first; of equals in the order of the corpus."""
        cosines = vectors @ query
        # Stable: equals stay in the order of the corpus.
        order = np.argsort(-cosines, kind="stable")[:k]
        lines = tuple(map(partial(scored, said), self._lines(found.at(order)), cosines[order].tolist()))
        if not why:
            return lines
        spans = [span_at(line.place) for line in lines]
        # Occlusion, one pass of the model for each word around.
        line_reasons = reasons(self._store, self.vectors.embed, spans, query)
        return tuple(replace(line, reasons=each) for line, each in zip(lines, line_reasons, strict=True))

    def _lines(self, found: Found) -> tuple[Line, ...]:
        return tuple(map(Line, places(self._store, found)))

    def count(
        self,
        word: str | None = None,
        *,
        by: str = "form",
        where: Sequence[str] = (),
        against: Sequence[str] = (),
        k: int | None = 50,
        least: int = 0,
        plot: bool = False,
        case: bool = False,
        diacritics: bool = True,
    ) -> Counts:
        """How often a word is used, or each word: by its form, or by what is known of its text.

        Args:
            word: as of `find`; None for all words.
            by: "form", "lemma", "pos", or what `where` may name: a field of the corpus, "date", "year", ...
                Or what groups the uses of a word: "L1", "R2", "node", or several, "L1,R1".
            where: as of `find`. Rates are those among all words of the texts that it allows.
            against: other conditions, or "rest". Then the keywords: the words that are more frequent where
                `where` holds than where these do, by log-likelihood.
            k: the most rows; None for all.
            least: keywords are there so often.
            plot: whether rows by a field tell where in its texts the uses stand, in 40 parts.
            case, diacritics: as of `find`.

        Raises:
            InputError: a word, a field or a condition that is none of the corpus's.

        Example:
            >>> from regard import Concordance
            >>> import tempfile
            >>> from pathlib import Path
            >>> from regard.concordance import build_index
            >>> folder = Path(tempfile.mkdtemp())
            >>> _ = (folder / "a.txt").write_text("The bank of the river.\\n")
            >>> _ = build_index([folder / "a.txt"], folder / "index")
            >>> Concordance(folder / "index").count(k=1).to_rows()
            [{'form': 'the', 'count': 2, 'per_million': 400000.0}]
        """
        k = None if k is None else whole("k", k, least=1)
        if against:
            if word is not None:
                raise InputError("against must be left out with a word: it is for all words.")
            return keywords(self._store, where, against, by=by, k=k, least=least)
        spelling = Spelling(case, diacritics)
        return counted(self._store, word, where, by=by, k=k, plot=plot, spelling=spelling)

    def collocates(
        self,
        word: str,
        *,
        span: tuple[int, int] = (5, 5),
        by: str = "form",
        where: Sequence[str] = (),
        k: int | None = 50,
        least: int = 0,
        measure: str = "g2",
        case: bool = False,
        diacritics: bool = True,
    ) -> Counts:
        """The words that stand near a word more often than elsewhere, with how much they keep to it.

        Args:
            word, where, k, case, diacritics: as of `count`.
            span: so many words before and after it.
            by: "form" or "lemma".
            least: they stand near it so often.
            measure: by which they are sorted: "g2", "log_ratio", "log_dice", "mi", "mi3" or "t".

        Raises:
            InputError: as of `count`.
        """
        span = typed("span", span, tuple[int, int])
        span = whole("span", span[0], least=0, most=50), whole("span", span[1], least=0, most=50)
        hits = select(self._store, word, where, spelling=Spelling(case, diacritics))
        near = f"{span[0]} words" if span[0] == span[1] else f"{span[0]} words before and {span[1]} after"
        about = f"within {near} of {word}, {len(hits.uses):,} uses, and elsewhere"
        # What is passed on as it is.
        options: dict[str, Any] = {"by": by, "where": where, "k": k, "least": least, "measure": measure}
        return collocates(self._store, hits, span=span, about=about, **options)

    def save_subcorpus(self, name: str, where: Sequence[str]) -> None:
        """Keep conditions under a name, so that "@NAME" stands for them; one of that name is replaced.

        Raises:
            InputError: a condition or a name that is none.
        """
        save_subcorpus(self._store, name, where)

    def embed_all(self, progress: OnProgress = None) -> None:
        """Compute the vectors of all words, and make what finds other words: `find(.., any_word=True)`.

        Stopped, by whatever, it goes on where it was.

        Args:
            progress: called with (done, total) uses.

        Raises:
            MissingExtraError: lancedb is not installed.
            OutputError: the folder cannot be written to, or another process writes to it.
        """
        make_any(self._store, self.vectors, progress)

    def _query(
        self, span: Any, found: Found, vectors: Vectors, more: Sequence[int], less: Sequence[int]
    ) -> Vectors:
        examples = _examples(found, more, less)
        # Without a sentence the query is made of examples alone.
        start = np.zeros(1, np.float32) if span is None else self.vectors.embed([span])[0]
        return refined(start, *(vectors[each] for each in examples))

    def senses(
        self,
        word: str,
        *,
        where: Sequence[str] = (),
        groups: int | None = None,
        file: str | os.PathLike[str] | None = None,
        sample: int | None = None,
        seed: int = 0,
        progress: OnProgress = None,
    ) -> Senses:
        """The uses of a word in groups: found by their vectors, or labelled by the examples in a file.

        Args:
            word, where, sample, seed, progress: as of `find`.
            groups: so many groups; None for as many as are stable, which may be one.
            file: a JSON file, `{"word": ..., "senses": {name: [sentences with the *word* marked]}}`. Where it
                is not there, the groups that are found are written to it, to be named, merged and split by
                hand. Where it is, it labels the uses of this index: by logistic regression on the vectors of
                its examples, with "unsure" for what is not likely enough.

        Raises:
            InputError: as of `find`, a file that is none, or of another word.
            MissingExtraError: scikit-learn is not installed.
        """
        hits = select(self._store, word, where, sample=sample, seed=seed)
        # Uses that the tokenizer drops have no vector to group by.
        hits, vectors, left_out = self.vectors.with_vectors(hits, progress)
        file = None if file is None else path_of("file", file)
        return _senses.senses(
            self._store, self.vectors.embed, word, hits, vectors, groups, file, seed, about=left_out
        )

    def teach(
        self,
        word: str,
        file: str | os.PathLike[str],
        ask: Callable[[Line, Sequence[str]], str | None],
        *,
        where: Sequence[str] = (),
        most: int = 20,
        progress: OnProgress = None,
    ) -> int:
        """Ask for the senses of those uses that would decide most; each answer is saved at once.

        Args:
            word, where, progress: as of `find`.
            file: of the senses, as of `senses`; what is in it is known, and not asked again.
            ask: called with a line, whose `label` and `probability` are what is guessed so far, and with the
                names that there are; returns a name, "" to pass the line over, or None to stop.
            most: so many answers.

        Returns:
            How many lines were labelled. `senses(word, file=file)` then labels all.
        """
        hits, vectors, _ = self.vectors.with_vectors(select(self._store, word, where), progress)
        return _teach.teach(
            self.vectors.embed, word, self._lines(hits), vectors, path_of("file", file), ask, most
        )

    def drift(
        self,
        word: str,
        by: str = "date",
        *,
        bins: Sequence[str] = (),
        document: str | None = None,
        where: Sequence[str] = (),
        file: str | os.PathLike[str] | None = None,
        samples: int = 999,
        seed: int = 0,
        progress: OnProgress = None,
    ) -> Drift:
        """How the use of a word differs between periods, or between parts of the corpus.

        Args:
            word, where, progress: as of `find`.
            by: "date", or what parts of the corpus have: "year", "decade", "source", or one of its fields.
            bins: dates at which periods begin; without any, a date that halves the uses.
            document: the field that says which rows are of one document; None for that of the index.
            file: of the senses; without it, they are the groups that `senses` finds.
            samples: of the bootstrap, and permutations.
            seed: of the draws.

        Raises:
            InputError: as of `find`; no such field; or it parts the uses in fewer than two, or in too many.
        """
        samples = whole("samples", samples, least=1)
        fields = self._store.manifest.get("fields", [])
        if document is not None:
            one_of("document", document, fields)
        unit = document or self._store.manifest["reading"]["document"]
        # Documents: as asked, else as the index was made, else the field of that name.
        unit = unit or ("document" if "document" in fields else None)
        hits = select(self._store, word, where)
        # Uses without a date or field belong to no part.
        parts, names = parts_of(values_of(self._store, self._store.tokens.doc_of(hits.uses), by), by, bins)
        known = {use: part for use, part in zip(hits.uses.tolist(), parts, strict=True) if part is not None}
        # Senses are found over all parts together: the same groups on both sides.
        senses = self.senses(word, where=where, file=file, seed=seed, progress=progress)
        rows = [row for row, line in enumerate(senses.lines) if line.place.use in known]
        lines = [senses.lines[row] for row in rows]
        of, there = [known[line.place.use] for line in lines], [line.place for line in lines]
        units = units_of(there, unit)
        changes = drift(lines, senses.vectors[rows], of, names, units=units, samples=samples, seed=seed)
        note = doubt(there, of) if unit is None else ""
        return Drift(word, changes, len(parts) - len(rows), note)


def _examples(found: Found, more: Sequence[int], less: Sequence[int]) -> list[list[int]]:
    """The places of uses among those that were found; InputError where one is none of them."""
    # A use is asked for by its number in the corpus, and found by its place in this list.
    at = {use: place for place, use in enumerate(found.uses.tolist())}
    for name, uses in (("more", more), ("less", less)):
        if odd := [use for use in uses if use not in at]:
            raise InputError(
                f"{name} must be uses of this word, by the number that a line has; got {odd[0]}."
            )
    return [[at[use] for use in uses] for uses in (more, less)]
