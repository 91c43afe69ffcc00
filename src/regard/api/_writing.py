"""Texts that a model writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from regard.api._has_network import HasNetwork
from regard.core.arguments import check_function
from regard.core.errors import InputError
from regard.core.progress import Bar
from regard.decoding import (
    BATCH_TOKENS,
    Beams,
    Choice,
    Filled,
    Precision,
    RuleChanges,
    Rules,
    Speculation,
    Watched,
    Written,
    decode_texts,
    fill,
    prepared,
    recommended,
    stream,
    watch_text,
)
from regard.text import each_text

if TYPE_CHECKING:
    from regard.tracing import Keep


Messages = Sequence[Mapping[str, Any]]


class _How(RuleChanges, total=False):
    choice: Choice | Beams | Speculation | None
    stop: str | Sequence[str]
    prefix: str | Sequence[str]
    batch_tokens: int
    progress: Callable[[int, int], object] | None


class Writing(HasNetwork):
    """What a model writes: continuations of prompts, translations of sources."""

    @overload
    def generate(self, texts: str, *, trace: Literal[True] | Keep, **how: Unpack[_How]) -> Watched: ...
    @overload  # a string is an iterable of strings
    def generate(self, texts: str, *, count: None = None, **how: Unpack[_How]) -> Written: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, texts: str, *, count: int, **how: Unpack[_How]) -> list[Written]: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, texts: Iterable[str], *, count: None = None, **how: Unpack[_How]) -> list[Written]: ...
    @overload
    def generate(self, texts: Iterable[str], *, count: int, **how: Unpack[_How]) -> list[list[Written]]: ...
    def generate(
        self,
        texts: str | Iterable[str],
        *,
        choice: Choice | Beams | Speculation | None = None,
        count: int | None = None,
        trace: bool | Keep = False,
        stop: str | Sequence[str] = (),
        prefix: str | Sequence[str] = "",
        batch_tokens: int = BATCH_TOKENS,
        progress: Callable[[int, int], object] | None = None,
        **rules: Unpack[RuleChanges],
    ) -> Written | list[Written] | list[list[Written]]:
        """Write: a decoder continues each text, an encoder-decoder translates it.

        Texts run as one batch, but none affects another.

        Args:
            texts: a text, which gives one result, or several, which give a list of them. A blank one among
                several gives "".
            choice: how to choose tokens. None is greedy: the likeliest token at every step.
                `regard.Sampling(temperature=0.8, top_p=0.95, seed=1)` draws, `regard.Beams(4)` searches, and
                `model.recommended()` is what the checkpoint's files ask for. `regard.Lookup()` and
                `regard.Draft(smaller.loaded)` guess tokens ahead: the greedy text, in less time.
            count: how many continuations of each text, as a list: so many drawn, or the best of the beams.
            trace: for a single text, whether to record what the model reads while it writes: True keeps
                queries and keys; "all" and others are as `keep` in `trace`. The result is a
                `regard.decoding.Watched`: it has the trace, the five likeliest tokens of each step, the
                branches of beams, and `.write_page(file)`, which shows it step by step.
            stop: texts before which it ends.
            prefix: how a translation begins, or a list with one for each text: with "Ich" the model goes on
                after that. `.text` has it in front; `.token_ids` has only what was written.
            batch_tokens: the most tokens that run together, all continuations counted.
            progress: called now and then with (done, total) texts. None: a bar on stderr, where that is a
                terminal or a notebook, after 3 seconds.
            rules: any argument of `regard.decoding.Rules`: `max_length=50` new tokens at most,
                `min_length`, `repetition_penalty=1.2`, `no_repeat=3` and more; the others are as the
                checkpoint has them.

        Returns:
            What was written: `.text`, `.token_ids`, `.log_probabilities`, `.score`, `.ended`; `print` shows
            the text.

        Raises:
            InputError: the model does not write, or a text or number is not allowed.
            CheckpointError: there is no tokenizer.

        Example:
            >>> import regard, torch
            >>> from transformers import GPT2Config, GPT2LMHeadModel
            >>> from tokenizers import Tokenizer, models, pre_tokenizers
            >>> words = Tokenizer(models.WordLevel({"a": 0, "river": 1, "bank": 2}, "a"))
            >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
            >>> config = GPT2Config(
            ...     vocab_size=3, n_positions=17, n_embd=6, n_layer=1, n_head=3, bos_token_id=None,
            ...     eos_token_id=None,
            ... )
            >>> _ = torch.manual_seed(0)
            >>> model = regard.lens(GPT2LMHeadModel(config).eval(), words)
            >>> model.generate("a river", max_length=3)
            Written(' river river bank', 3 tokens, log p -3.20, cut at the limit)
            >>> len(model.generate(["a river", "a bank"], choice=regard.Sampling(), count=2)[1])
            2
        """
        single = isinstance(texts, str)
        # One text is a batch of one.
        prompts = [texts] if isinstance(texts, str) else list(each_text("texts", texts))
        if single and not prompts[0].strip():
            raise InputError("texts must hold a text to go on from; got a blank one.")
        # Recording shows one text, and one way of writing it.
        if trace is not False:
            if not single or count is not None or not isinstance(prefix, str):
                raise InputError("trace must be False with several texts or a count: it is of one text.")
            return watch_text(
                self.loaded,
                self.tokenizer,
                prompts[0],
                choice=choice,
                stop=stop,
                rules=Rules.of(self.loaded, **rules),
                prefix=prefix,
                keep="qk" if trace is True else trace,
            )
        check_function("progress", progress, "of what is done and what there is", optional=True)
        done = 0
        with Bar("texts", patience=3.0) as bar:

            def advance(more: int) -> None:
                # Texts end one by one: the number that is done is counted here.
                nonlocal done
                done += more
                (progress or bar)(done, len(prompts))

            written = decode_texts(
                self.loaded,
                self.tokenizer,
                prompts,
                choice=choice,
                count=1 if count is None else count,
                stop=stop,
                rules=Rules.of(self.loaded, **rules),
                prefix=prefix if isinstance(prefix, str) else list(each_text("prefix", prefix)),
                batch_tokens=batch_tokens,
                advance=advance,
            )
        if count is None:
            # Without a count each text has one continuation, which is not wrapped in a list.
            firsts = [ways[0] for ways in written]
            return firsts[0] if single else firsts
        return written[0] if single else written

    @overload
    def chat(self, messages: Messages, *, trace: Literal[True] | Keep, **how: Unpack[_How]) -> Watched: ...
    @overload
    def chat(self, messages: Messages, *, count: None = None, **how: Unpack[_How]) -> Written: ...
    @overload
    def chat(self, messages: Messages, *, count: int, **how: Unpack[_How]) -> list[Written]: ...
    def chat(self, messages: Messages, **how: Any) -> Written | list[Written]:
        """Answer messages, as a chat model does: write what follows them in its chat template.

        Args:
            messages: dicts with `role` ("system", "user", "assistant") and `content`, the first one first.
            how: as in `generate`. An answer also ends with the special token that the template puts behind
                one, whatever the checkpoint's files name.

        Returns:
            As of `generate`: `.text` is the answer, `.messages` all messages with the answer as the last, and
            `.prompt_ids` what the model read.

        Raises:
            InputError: the model has no chat template, or it refuses the messages; or as `generate`.
            CheckpointError: the template is broken, or takes too long.

        Example:
            >>> import regard
            >>> regard.load().chat([{"role": "user", "content": "Why is the sky blue?"}])
            Traceback (most recent call last):
            regard.core.errors.InputError: model must have a chat template, to answer messages; ...
        """
        written: Any = self.generate(self.tokenizer.chat(messages), **how)
        return written  # type: ignore[no-any-return]

    def stream(
        self,
        text: str | Messages,
        *,
        choice: Choice | Speculation | None = None,
        stop: str | Sequence[str] = (),
        prefix: str = "",
        **rules: Unpack[RuleChanges],
    ) -> Iterator[str]:
        """Write one text and give each piece as soon as it is written.

        Args:
            text: a text, or messages to answer, as in `chat`.
            choice, stop, prefix, rules: as in `generate`; beams have no text before their end.

        Returns:
            An iterator of pieces that join to what `generate` gives: never half a character, and nothing of a
            stop. Break off whenever you like.

        Raises:
            InputError: as `generate`.

        Example:
            >>> import regard
            >>> regard.load().stream("a river")
            Traceback (most recent call last):
            regard.core.errors.InputError: model must have a decoder and a language-model head, to write ...
        """
        return stream(
            self.loaded,
            self.tokenizer,
            text if isinstance(text, str) else self.tokenizer.chat(text),
            choice=choice,
            stop=stop,
            rules=Rules.of(self.loaded, **rules),
            prefix=prefix,
        )

    def prepared(self, precision: Precision = "float32") -> Self:
        """The same model with its decoder's weights stored in "bfloat16" or "int8", to write faster.

        It sums in float32. See `regard.decoding.prepared`, which says what is rounded and refused; `generate`
        takes a model in float32 to its fastest by itself.

        Example:
            >>> import regard
            >>> regard.load().prepared("int8")
            Traceback (most recent call last):
            regard.core.errors.InputError: model must have a decoder of regard's own, to be ...
        """
        return type(self)(prepared(self.loaded, precision))

    def fill(self, text: str, *, top: int = 5) -> Filled:
        """Guess the tokens behind each mask of a text: see `regard.decoding.fill`.

        `model.fill("The man sat on the river [MASK].")` needs a masked language model, such as BERT with its
        head; `print` shows the guesses with their probabilities.
        """
        return fill(self.loaded, text, top=top)

    def recommended(self, *, seed: int = 0) -> Choice | Beams:
        """How the checkpoint's own files ask it to write: see `regard.decoding.recommended`."""
        return recommended(self.loaded, seed=seed)
