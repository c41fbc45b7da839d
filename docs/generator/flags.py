"""Reference page of the flags that this package adds to fairseq-train, and of its architectures.

``python docs/generate.py`` writes the committed page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ode_transformer.nn import STACKS
from ode_transformer.support.tables import markdown_table

# Title of a section, the words that choose a model of ours, those that choose the model of fairseq beside it.
SECTIONS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("Encoder–decoder models", ("--arch", "ode_transformer_rk2"), ("--arch", "transformer")),
    ("Reformer, in addition", ("--arch", "reformer"), ("--arch", "ode_transformer_rk2")),
    ("The task of the Reformer", ("--arch", "reformer", "--task", "joint_translation"), ("--arch", "reformer")),
    ("BERT, in addition", ("--arch", "macaron_bert_base"), ("--arch", "roberta")),
)

# Column of the table of architectures and the option that it shows.
SIZES = {
    "layers": "layers",
    "width": "embed_dim",
    "inner size": "ffn_embed_dim",
    "heads": "attention_heads",
    "scheme": "ode_scheme",
}

INTRODUCTION = """# Flags and architectures

`python docs/generate.py` writes this page from fairseq-train's parser and the registered architectures.

This package adds the following flags to fairseq's Transformer. Language models take the decoder's flags, BERT takes the
encoder's. A flag of depth, such as `--ode-function`, sets both stacks, and a stack that has no use for it ignores it.
With the name of a stack in front, such as `--decoder-ode-function`, it sets that stack alone.

[ode_transformer.md](ode_transformer.md) explains the choices. [schemes.md](schemes.md) compares the schemes; `rk2`,
`rk3` and `repeat2` are other names of `heun`, `kutta3` and `repeat`. [combinations.md](combinations.md) says which
choices go together."""

ARCHITECTURES = """Layers and schemes are written as encoder + decoder. All architectures are pre-norm except
`dlstm*`, which has no residual connections."""


def reference_page() -> str:
    """Return the page as Markdown."""
    architectures = architecture_options()
    described: set[str] = set()
    parts = [INTRODUCTION]
    for title, ours, theirs in SECTIONS:
        actions = [action for action in added_actions(ours, theirs) if action.option_strings[0] not in described]
        described.update(action.option_strings[0] for action in actions)
        rows = [flag_row(action, architectures) for action in actions]
        parts += [f"## {title}", markdown_table(["flag", "values", "default", "meaning"], rows, "llll")]
    parts += [
        "## Architectures",
        ARCHITECTURES,
        markdown_table(["architecture", *SIZES], architecture_rows(architectures)),
    ]
    return "\n\n".join(parts) + "\n"


def architecture_options() -> dict[str, dict[str, Any]]:
    """Return the options that each architecture of this package sets, by its name; none of a stack without layers."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    import ode_transformer.models  # noqa: F401  (registers the architectures)
    from ode_transformer.models.admission import is_of_this_package

    options = {}
    for name, set_defaults in ARCH_CONFIG_REGISTRY.items():
        if is_of_this_package(name):
            args = argparse.Namespace()
            set_defaults(args)
            stacks = ARCH_MODEL_REGISTRY[name].stacks
            numbers = {f"{stack}_layers": getattr(args, f"{stack}_layers") for stack in stacks}
            empty = tuple(f"{stack}_" for stack in STACKS if not numbers.get(f"{stack}_layers"))
            options[name] = numbers | {key: value for key, value in vars(args).items() if not key.startswith(empty)}
    return options


def added_actions(ours: tuple[str, ...], theirs: tuple[str, ...]) -> Iterator[argparse.Action]:
    """Yield the options that fairseq-train has with the words ``ours`` and lacks with ``theirs``."""
    from fairseq import options

    import ode_transformer.models  # noqa: F401  (registers the architectures)

    parsers = options.get_training_parser(), options.get_training_parser()
    for parser, words in zip(parsers, (ours, theirs), strict=True):  # adds the options of an architecture
        options.parse_args_and_arch(parser, ["data", *words], parse_known=True)
    names = set(parsers[1]._option_string_actions)
    for action in parsers[0]._actions:
        is_added = action.option_strings and names.isdisjoint(action.option_strings)
        if is_added and action.help is not argparse.SUPPRESS:  # of one stack, see the introduction
            yield action


def flag_row(action: argparse.Action, architectures: Mapping[str, Mapping[str, Any]]) -> tuple[str, str, str, str]:
    """Return the cells of one flag: its name, values, default and meaning."""
    if action.nargs == 0:
        values = ""
    elif action.choices is not None:
        values = ", ".join(f"`{choice}`" for choice in action.choices)
    else:
        values = str(action.metavar or action.dest.upper())
    meaning = action.help or ""
    if action.choices is not None:
        meaning = meaning.replace(f": {', '.join(action.choices)}", "")  # they have a column of their own
    return f"`{action.option_strings[0]}`", values, default_of(action, architectures), meaning


def default_of(action: argparse.Action, architectures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the default of a flag: the most frequent one, then those of other architectures."""
    names_by_default: dict[str, list[str]] = {}
    for name, options in architectures.items():
        if action.dest in options:
            names_by_default.setdefault(default_text(options[action.dest]), []).append(name)
    if not names_by_default:
        return default_text(action.default)
    all_names = [name for names in names_by_default.values() for name in names]
    most_frequent, *exceptions = sorted(names_by_default, key=lambda value: -len(names_by_default[value]))
    exceptions = [
        f"{', '.join(f'`{pattern}`' for pattern in name_patterns(names_by_default[value], all_names))}: {value}"
        for value in exceptions
    ]
    return "; ".join([most_frequent, *exceptions])


def default_text(value: object) -> str:
    """Return a default as the page shows it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)


def name_patterns(names: Sequence[str], all_names: Iterable[str]) -> list[str]:
    """Return the shortest patterns ``prefix*`` that match ``names`` and no other name."""
    excluded = [name for name in all_names if name not in names]
    patterns: list[str] = []
    for name in names:
        segments = name.split("_")
        prefixes = ("_".join(segments[:count]) for count in range(1, len(segments) + 1))
        prefix = next((p for p in prefixes if not any(foreign.startswith(p) for foreign in excluded)), name)
        alone = [match for match in names if match.startswith(prefix)] == [name]
        pattern = name if alone else f"{prefix}*"
        if pattern not in patterns:
            patterns.append(pattern)
    return patterns


def architecture_rows(architectures: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each architecture; where encoder and decoder differ, the encoder's comes first."""
    for name, options in architectures.items():
        cells = []
        for option in SIZES.values():
            values = [default_text(options[key]) for stack in STACKS if (key := f"{stack}_{option}") in options]
            joined = option == "layers" or len(set(values)) > 1
            cells.append(" + ".join(values) if joined else values[0])
        yield (f"`{name}`", *cells)


if __name__ == "__main__":
    print(reference_page(), end="")
