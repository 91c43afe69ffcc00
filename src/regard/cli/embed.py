"""`regard embed`: vectors of words, tokens or sentences, of as many texts as there are."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._embed_job import Limit, estimated, printed, written
from regard.cli._options import DELIMITER, ENCODING, ESCAPE, JSON, MODEL, NO_HEADER, argument, flag, option
from regard.cli._output import check_outputs
from regard.cli._progress import say, status
from regard.cli._ray_option import ray_workers
from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.embedding.job import Work

    OpenWork = Callable[[Mapping[str, Any] | None], Work]


def embed(
    ctx: typer.Context,
    inputs: list[Path] = argument(
        "IN...", "Files or folders: plain text, JSON lines, CSV, TSV or Parquet, compressed too; - is stdin."
    ),
    output: Path | None = option(
        "--output -o OUT", "A folder for Parquet files; a .npy file; - prints JSON."
    ),
    level: str = option("--level WHAT", "sentence, word or token: what gets a vector.", "sentence"),
    layer: str | None = option("--layer -l N[,N...]", "0 is the table. Several give a column each."),
    mix: str | None = option("--mix N,N...", "Instead of --layer: the mean of these."),
    pooling: str | None = option(
        "--pooling HOW",
        "mean, cls, max, last, weighted_mean, mean_sqrt_len; by default the model's own. Of words: "
        "mean, first, last, max.",
    ),
    normalize: bool | None = flag(
        "--normalize/--no-normalize", "Scale vectors to length 1; by default as the model does.", None
    ),
    window: int | None = option("--window N", "Tokens at a time; by default the model's limit."),
    overlap: int | None = option("--overlap N", "Tokens that two windows share."),
    truncate: bool = flag(
        "--truncate", "Cut texts off at the limit; by default windows cover all of a text."
    ),
    prompt: str | None = option("--prompt TEXT", "A text to put before each text."),
    prompt_name: str | None = option("--prompt-name NAME", "One of the model's own prompts."),
    truncate_dim: int | None = option("--dims N", "Keep the first N numbers of each vector."),
    precision: str = option(
        "--precision TYPE",
        "What to compute in: float32, bfloat16, int16, int8; or fast, the fastest near float32.",
        "float32",
    ),
    storage: str = option("--storage TYPE", "Store vectors as float32, float16, int8 or ubinary.", "float32"),
    device: str | None = option("--device NAME", "cpu, or cuda for a GPU; by default cpu."),
    batch_tokens: int | None = option("--batch-tokens N", "How many tokens to compute at once."),
    threads: int | None = option("--threads N", "How many; by default one for each core."),
    text_column: list[str] | None = option(
        "--text-column NAME", 'Give it twice to join two; by default "text".'
    ),
    id_column: str | None = option("--id-column NAME", "The column that becomes the column id."),
    keep: list[str] | None = option("--keep NAME", "A column to carry along; give it again for more."),
    format: str | None = option(
        "--format NAME",
        "The format of IN: text, jsonl, csv, tsv, parquet; by default from its name and contents.",
    ),
    delimiter: str | None = DELIMITER,
    escape: str | None = ESCAPE,
    no_header: bool = NO_HEADER,
    encoding: str = ENCODING,
    max_rejected: str | None = option(
        "--max-rejected N|N%", "Exit with 1 if more rows are put aside; by default any number may be."
    ),
    rows_per_shard: int | None = option("--rows-per-shard N", "Rows in each Parquet file; by default 8192."),
    shard: str = option(
        "--shard I/N",
        "Write every N-th file, from number I on: for N processes, each with its own OUT.",
        "0/1",
    ),
    dry_run: bool = flag("--dry-run", "Only estimate rows, tokens, time and bytes, from a sample."),
    ray: str | None = option(
        "--ray [ADDRESS]",
        "Embed on a Ray cluster, such as auto or HOST:PORT; without an address on this machine.",
    ),
    workers: int | None = option("--workers N", "With --ray: how many; by default as many as fit."),
    model: str = MODEL,
    as_json: bool = JSON,
) -> None:
    """Embed texts: one vector a sentence, or one a word or token in its context.

    OUT is a folder of Parquet files. Run the same command again after an interruption, of any kind: it goes
    on, and the result is that of one run. Rows that cannot be embedded are put aside, with the reason, in
    OUT/_quarantine.jsonl; _manifest.json says what the vectors were made with.
    """
    if output is None and not dry_run:
        raise InputError("--output names where the vectors go: a folder, a .npy file, or -.")
    if output is not None and output.suffix == ".npz":
        raise InputError("--output writes no .npz; give a folder, whose files hold the same, or a .npy.")
    if mix is not None and layer is not None:
        raise InputError("give --layer or --mix, not both.")
    if truncate and overlap is not None:
        raise InputError("--overlap goes with windows, not with --truncate.")
    if workers is not None and ray is None:
        raise InputError("--workers goes with --ray.")
    if ray is not None and (dry_run or str(output) == "-"):
        raise InputError("--ray writes files: leave it out with --dry-run and -o -.")
    if ray is not None and device not in (None, "cpu"):
        raise InputError(f"--ray spreads over processors; got --device {device}. Give one of the two.")
    limit = Limit(max_rejected)
    share = _share(shard)
    to_stdout = output is not None and str(output) == "-"
    if share != (0, 1) and (output is None or to_stdout or output.suffix == ".npy"):
        raise InputError("--shard goes with a folder: give -o one.")
    if to_stdout and as_json:
        raise InputError("-o - prints JSON lines by itself; leave --json out.")
    if output is not None and not to_stdout:
        check_outputs({"--output": output})
    # What is asked of the vectors goes on by its name.
    wanted = dict(ctx.params, layer=_numbers("--layer", layer), mix=_numbers("--mix", mix))
    with status("looking at the input"):
        from regard.data import Csv
        from regard.embedding.job import SHARD_ROWS, Columns, Inputs

        columns = Columns(
            text=None if not text_column else tuple(text_column), id=id_column, keep=tuple(keep or ())
        )
        rows = Inputs(
            inputs,
            columns,
            format=format,
            csv=Csv(delimiter=delimiter, escape=escape, header=not no_header),
            encoding=encoding,
            copies=None if output is None or to_stdout else output.absolute().parent,
        )
    open_work = _opener(model, wanted)
    shard_rows = SHARD_ROWS if rows_per_shard is None else rows_per_shard
    if dry_run:
        estimated(rows, open_work, as_json)
    elif to_stdout:
        printed(rows, open_work, shard_rows, limit)
    else:
        assert output is not None
        spread = partial(ray_workers, ray, workers, model, wanted)
        written(rows, output, open_work, shard_rows, share, spread, limit, as_json)


def _numbers(option: str, words: str | None) -> list[int] | None:
    try:
        return None if words is None else [int(word) for word in words.split(",")]
    except ValueError:
        raise InputError(f"{option} must be a whole number, or several with commas; got {words!r}.") from None


def _share(words: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", words)
    if found is None or not int(found[1]) < int(found[2]):
        raise InputError(f"--shard must be I/N with I from 0 to N - 1, such as 0/8; got {words!r}.")
    return int(found[1]), int(found[2])


def _opener(model: str, wanted: Mapping[str, Any]) -> "OpenWork":
    """Loads the model when the job asks for it, with a spinner: importing torch takes seconds."""

    def open_work(earlier: Mapping[str, Any] | None) -> "Work":
        with status(f"loading {model}"):
            from regard.embedding.job import open_model

            work = open_model(model, wanted, earlier)
        for note in work.about.get("notes", ()):
            say(f"note: {note}")
        if wanted["precision"] != "float32":
            typer.echo(f"regard: computed in {work.about['computed']}", err=True)
        return work

    return open_work
