"""Write which fields of config.json transformers knows: src/regard/checkpoints/config_fields.json.

    .venv/bin/python scripts/config_fields.py             those of the installed transformers, added
    .venv/bin/python scripts/config_fields.py FOLDER ...  those of others, by their packages' folders

Of each model type of regard's families: the names that its configuration takes or sets, and those that its
modelling code reads off a config; under "any" those of the code that all models share. Sources are parsed and
not run. A name too many costs an error that says so; one that lacks would be passed over. So what was known
once stays in the file, beside the versions that were read: published models are of any version.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from regard.models import FAMILIES

DATA = Path(__file__).resolve().parent.parent / "src/regard/checkpoints/config_fields.json"
_SHARED = [
    "*_utils",
    "modeling_layers",
    "generation*",
    "generation/*",
    "utils/*",
    "loss/*",
    "integrations/**/*",
    "models/auto/*",
]
_OF_ANY_CONFIG = ("configuration_utils", "modeling_rope_utils", "output_capturing", "generic")


def known_fields(package: Path) -> dict[str, list[str]]:
    """The names, by model type and under "any", and the version under "versions"."""
    shared = [each for name in _SHARED for each in package.glob(f"{name}.py")]
    common = set().union(*map(_names, shared))
    found = {"any": common}
    files = {each.stem: each for each in package.rglob("*.py")}
    for family in FAMILIES:
        # A text model's files are those of its family: gemma3_text is in gemma3.
        name = family.removesuffix("_text").replace("-", "_")
        own = {f"configuration_{name}", f"modeling_{name}"} & files.keys()
        waiting = list(own)
        while waiting:
            new = (_imported(files[waiting.pop()]) & files.keys()) - own
            own |= new
            waiting += new
        found |= {family: set().union(*(_names(files[each]) for each in own)) - common} if own else {}
    version = re.search(r'__version__ = "(.+?)"', (package / "__init__.py").read_text("utf-8"))
    assert version is not None
    return {"versions": [version[1]]} | {name: sorted(names) for name, names in found.items()}


def _imported(file: Path) -> set[str]:
    """The files of other models on which one builds: of XLM-R those of RoBERTa."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    of_models = re.compile(r"(configuration|modeling)_(?!\w*utils|layers|outputs|tf_|flax_)")
    return {last for module in modules if of_models.match(last := module.rpartition(".")[2])}


@cache
def _names(file: Path) -> frozenset[str]:
    """What a file takes or sets for a config, or reads off one; of files about any config, every name."""
    found: set[str] = set()
    whole = file.stem in _OF_ANY_CONFIG
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name.lower().endswith("config"):
            found.update(name for inner in ast.walk(node) for name in _named(inner))
        elif whole:
            found.update(_named(node))
        elif isinstance(node, ast.Attribute) and _is_config(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.Call) and node.args and _is_config(node.args[0]):
            found.update(name for each in node.args for name in _named(each))  # getattr(config, "name", None)
    # Of a decoder's config `decoder_ffn_dim` becomes `ffn_dim`.
    found |= {name.partition("_")[2] for name in found if name.startswith(("decoder_", "encoder_"))}
    return frozenset(name for name in found if re.fullmatch(r"_?[a-z]\w*", name))


def _is_config(owner: ast.AST) -> bool:
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return name.lower().endswith("config")


def _named(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.arg(arg=name) | ast.Constant(value=str(name)):
            yield name
        case ast.Attribute(attr=name):
            yield name


def main(packages: list[Path]) -> None:
    """Add those of packages to the file."""
    written = json.loads(DATA.read_text("utf-8")) if DATA.exists() else {}
    known = {name: names.split() for name, names in written.items()}
    for package in packages or [Path(find_spec("transformers").origin).parent]:
        for name, names in known_fields(package).items():
            known[name] = sorted({*known.get(name, ()), *names})
    lines = (f"{json.dumps(name)}: {json.dumps(' '.join(names))}" for name, names in sorted(known.items()))
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main(list(map(Path, sys.argv[1:])))
