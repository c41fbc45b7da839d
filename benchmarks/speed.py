"""Speed and memory of ODE Transformers, side by side with fairseq's own ``transformer``.

    python benchmarks/speed.py                          # WMT base, all comparisons
    python benchmarks/speed.py --size tiny --what train --systems euler-6 fairseq-6
    python benchmarks/speed.py --size iwslt --beam 5 --systems fairseq-6 reformer-fast-5 reformer-base-7

All systems have the same widths, vocabulary, dropout rates, batch and seed. They take turns (A B C A B C ...), so that
whatever slows the machine slows all of them; a ratio is the median of the ratios within each round. A training step is
forward, label-smoothed cross entropy, backward and Adam; its operations are those of its matrix products. Decoding is
fairseq's beam search at a fixed length. Memory is what one forward and backward pass take beyond parameters, gradients
and Adam's moments, of each system alone: on a GPU by PyTorch's allocator, on a CPU by the bytes of the tensors that
operators return.

All models are in memory at once: with WMT base, all systems and Adam about 14 GB.
"""

from __future__ import annotations

import argparse
import gc
import json
import operator
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measuring import DTYPES, Setting, Subject, make_batch
from reporting import MEMORY_NOTES, comparison_table, system_table

from ode_transformer.models.model_from_options import numbered_dictionary
from ode_transformer.support.arguments import positive_int, probability
from ode_transformer.support.provenance import provenance

MEASURES = ("train", "decode", "memory")


@dataclass(frozen=True)
class System:
    """An architecture, its options beside the common sizes, and which measures make sense for it."""

    arch: str
    options: dict[str, Any] = field(default_factory=dict)
    measures: tuple[str, ...] = MEASURES


def _fairseq(layers: int) -> System:
    pre_norm = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    return System("transformer", {"encoder_layers": layers} | pre_norm)


def _ours(layers: int, scheme: str = "euler", **options: Any) -> System:
    """Fixed coefficients, relative positions (k = 8) and DLCL unless ``options`` say otherwise."""
    return System("ode_transformer_euler", {"encoder_layers": layers, "encoder_ode_scheme": scheme} | options)


_NO_HISTORY = {"encoder_layer_history": "none", "decoder_layer_history": "none"}

# The numbers are layers of the encoder.
SYSTEMS: dict[str, System] = {
    "fairseq-6": _fairseq(6),
    "fairseq-12": _fairseq(12),
    "fairseq-24": _fairseq(24),
    "euler-6-plain": _ours(6, max_relative_positions=0, **_NO_HISTORY),
    "euler-6": _ours(6),
    "euler-12": _ours(12),
    "euler-24": _ours(24),
    "rk2-6": _ours(6, "rk2"),
    "rk2-gate-6": System("ode_transformer_rk2", {"encoder_layers": 6}),
    "rk4-6": _ours(6, "rk4"),
    "rk4-6-recompute": System(
        "ode_transformer_rk4", {"encoder_layers": 6, "checkpoint_activations": True}, ("train", "memory")
    ),
    "rk4-5": System("ode_transformer_rk4", {"encoder_layers": 5}, ("memory",)),
    "dlstm-6": System("dlstm", {"encoder_layers": 6}),
    # The joint layers of Reformer's paper, whose matrices are as many as those of a Transformer with 6-6 layers.
    "reformer-fast-5": System("reformer_fast", {"encoder_layers": 5, "decoder_layers": 5}),
    "reformer-base-7": System("reformer_base", {"encoder_layers": 0, "decoder_layers": 7}),
}
ONE_STEP = ("rk4-6", "rk4-5")  # what the first holds beyond the second is what one RK4 step holds


@dataclass(frozen=True)
class Comparison:
    """One system against another.

    :param measure: train: ratio of times; decode: of speeds; memory: of peaks
    :param aim: relation and bound, None if there is nothing to reach
    :param less_one_step: take what one RK4 step holds off the system's memory first
    :param per_operation: divide times by the operations that a training step takes
    """

    measure: str
    system: str
    baseline: str
    aim: tuple[str, float] | None = None
    less_one_step: bool = False
    per_operation: bool = False

    @property
    def name(self) -> str:
        return f"{self.system}/{self.baseline}"

    @property
    def needs(self) -> set[str]:
        return {self.system, self.baseline, *(ONE_STEP if self.less_one_step else ())}


RELATIONS = {"≤": operator.le, "<": operator.lt, "≥": operator.ge}

COMPARISONS = (
    Comparison("train", "euler-6", "fairseq-6", ("≤", 1.10)),
    Comparison("train", "euler-6-plain", "fairseq-6"),
    Comparison("train", "rk2-6", "fairseq-12", ("≤", 1.0)),
    Comparison("train", "rk2-6", "euler-12", ("≤", 1.0)),
    Comparison("train", "rk2-gate-6", "euler-12"),
    Comparison("train", "rk4-6", "fairseq-24", ("≤", 1.0)),
    Comparison("train", "rk4-6", "euler-24", ("≤", 1.0)),
    Comparison("train", "rk4-6-recompute", "rk4-6"),
    Comparison("train", "dlstm-6", "euler-6-plain", ("≤", 1.15), per_operation=True),
    Comparison("decode", "euler-6", "fairseq-6"),
    Comparison("decode", "rk2-6", "euler-6", ("≥", 0.96)),  # ODE Transformer (2022), Table 6: relative inference speed
    Comparison("decode", "rk4-6", "euler-6", ("≥", 0.85)),
    Comparison("decode", "dlstm-6", "euler-6-plain"),
    Comparison("train", "reformer-fast-5", "fairseq-6"),
    Comparison("decode", "reformer-fast-5", "fairseq-6", ("≥", 0.9)),  # Reformer, Table 3: 0.73 on a GPU
    Comparison("decode", "reformer-base-7", "fairseq-6", ("≥", 0.7)),  # likewise: 0.52
    Comparison("memory", "rk2-6", "fairseq-12", ("<", 1.0)),
    Comparison("memory", "rk2-6", "euler-12", ("<", 1.0)),
    Comparison("memory", "rk4-6", "fairseq-24", ("<", 1.0)),
    Comparison("memory", "rk4-6", "euler-24", ("<", 1.0)),
    Comparison("memory", "rk4-6-recompute", "euler-6", ("≤", 1.0), less_one_step=True),
    Comparison("memory", "dlstm-6", "euler-6-plain"),
)

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "ffn": 256, "heads": 4, "decoder_layers": 4, "vocabulary": 4000},
    "iwslt": {"dim": 256, "ffn": 1024, "heads": 4, "decoder_layers": 6, "vocabulary": 10000},
    "base": {"dim": 512, "ffn": 2048, "heads": 8, "decoder_layers": 6, "vocabulary": 34040},
}

# system -> train, update, decode: seconds of each round; held, peak: bytes; operations: of a training step
Results = dict[str, dict[str, Any]]


def measure(setting: Setting, names: Iterable[str], what: Sequence[str], warmup: int, repetitions: int) -> Results:
    """Measures the systems ``names``: memory one by one, times in turn."""
    systems = {name: SYSTEMS[name] for name in SYSTEMS if name in set(names)}
    results: Results = {name: {} for name in systems}

    def build(name: str) -> Subject:
        subject = Subject(systems[name].arch, systems[name].options, setting)
        results[name]["parameters"] = subject.parameters
        return subject

    for name in systems:
        if "memory" in what:
            _progress(f"memory of {name}")
            results[name]["held"], results[name]["peak"] = build(name).memory()
            gc.collect()
    timed = [
        (kind, [name for name in systems if kind in systems[name].measures])
        for kind in ("train", "decode")  # in this order: after decoding there is no more training
        if kind in what
    ]
    subjects = {name: build(name) for name in systems if any(name in turn for _, turn in timed)}
    for kind, turn in timed:
        if kind == "train":
            for name in turn:
                results[name]["operations"] = subjects[name].operations()
        else:
            for name in turn:
                subjects[name].prepare_to_decode()
        for number in range(warmup + repetitions):
            _progress(f"{kind}, round {number + 1} of {warmup + repetitions}")
            for name in turn:
                seconds = subjects[name].train_step() if kind == "train" else subjects[name].decode()
                for key, value in seconds.items():
                    if number >= warmup:
                        results[name].setdefault(key, []).append(value)
    return results


def _progress(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def one_step(results: Results) -> int:
    """Bytes that one RK4 step of the encoder holds for the backward pass."""
    more, less = (results[name]["held"] for name in ONE_STEP)
    return more - less


def compare(comparison: Comparison, results: Results) -> dict[str, Any]:
    """The ratios of one comparison, their median, and whether the aim is met."""
    system, baseline = results[comparison.system], results[comparison.baseline]
    if comparison.measure == "memory":
        step = one_step(results) if comparison.less_one_step else 0
        ratios = [(system["peak"] - step) / baseline["peak"]]
    else:
        pairs = zip(system[comparison.measure], baseline[comparison.measure], strict=True)
        ratios = [a / b if comparison.measure == "train" else b / a for a, b in pairs]
        if comparison.per_operation:
            ratios = [ratio * baseline["operations"] / system["operations"] for ratio in ratios]
    found = {"name": comparison.name, **asdict(comparison), "ratios": ratios, "median": median(ratios)}
    if comparison.aim is not None:
        relation, bound = comparison.aim
        found["met"] = RELATIONS[relation](found["median"], bound)
    return found


def repetition_count(text: str) -> int:
    """A whole number from 5 on."""
    if positive_int(text) < 5:
        raise argparse.ArgumentTypeError(f"{text} is too few: medians are of at least 5")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    description, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="speed.py",
        usage="%(prog)s [options]",
        description=description,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    pairs = sorted({comparison.name for comparison in COMPARISONS})
    either = parser.add_mutually_exclusive_group().add_argument
    either("--systems", nargs="+", choices=SYSTEMS, metavar="NAME", help=f"default: all of {', '.join(SYSTEMS)}")
    either("--comparisons", nargs="+", choices=pairs, metavar="A/B", help=f"default: all of {', '.join(pairs)}")
    add("--what", choices=(*MEASURES, "all"), default="all", help="what is measured (default: all)")
    add("--size", choices=SIZES, default="base", help="preset for the next five options (default: base)")
    for name in SIZES["base"]:
        add(f"--{name.replace('_', '-')}", type=positive_int, metavar="N", help="default: the preset's")
    add("--sentences", type=positive_int, default=24, metavar="N", help="sentences in the batch (default: %(default)s)")
    add("--source-length", type=positive_int, default=25, metavar="N", help="mean, in tokens (default: %(default)s)")
    add("--target-length", type=positive_int, default=25, metavar="N", help="likewise; decoding: of every hypothesis")
    add("--length-spread", type=probability, default=0.2, metavar="P", help="lengths are mean · (1 ± P) (default: 0.2)")
    add("--beam", type=positive_int, default=4, metavar="N", help="default: %(default)s")
    add("--repetitions", type=repetition_count, default=5, metavar="N", help="measured rounds, at least 5 (default: 5)")
    add("--warmup", type=positive_int, default=1, metavar="N", help="rounds before them (default: %(default)s)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    add("--precision", choices=DTYPES, default="fp32", help="fp16 and bf16 as fairseq's flags, on cuda alone")
    add("--threads", type=positive_int, metavar="N", help="default: PyTorch's choice")
    add("--seed", type=positive_int, default=1, metavar="N", help="default: %(default)s")
    add("--json", type=Path, metavar="FILE", help="writes settings and every single measurement there, too")
    return parser


def settle(parser: argparse.ArgumentParser, args: argparse.Namespace) -> tuple[Setting, list[Comparison], list[str]]:
    """Fills in what presets and choices leave open, and ends in one line if the options do not go together.

    :returns: the setting, the comparisons, the systems that are measured
    """
    for name, value in SIZES[args.size].items():
        setattr(args, name, getattr(args, name) or value)
    if args.dim % args.heads:
        parser.error(f"--heads {args.heads} do not divide --dim {args.dim}")
    if args.dim % 2:
        parser.error(f"--dim {args.dim} is odd; sine and cosine of the positions take turns")
    if args.vocabulary < 10:
        parser.error(f"--vocabulary {args.vocabulary} is too small for beam search; at least 10")
    for name in ("source_length", "target_length"):
        if getattr(args, name) * (1 + args.length_spread) > 1000:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)} is too long: fairseq has 1,024 positions")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this PyTorch finds no GPU")
    if args.device == "cpu" and args.precision != "fp32":
        parser.error(f"--precision {args.precision} needs --device cuda: on a CPU it would measure conversions")
    if args.json is not None and not args.json.parent.is_dir():
        parser.error(f"--json {args.json}: {args.json.parent} is not a folder")
    what = MEASURES if args.what == "all" else (args.what,)
    comparisons = [c for c in COMPARISONS if c.measure in what and (not args.comparisons or c.name in args.comparisons)]
    if args.comparisons and not comparisons:
        parser.error(f"--what {args.what} does not measure what --comparisons {' '.join(args.comparisons)} compare")
    if args.systems:
        comparisons = [c for c in comparisons if c.needs <= set(args.systems)]
    chosen = set(args.systems or SYSTEMS)
    if args.comparisons:
        chosen = set().union(*(c.needs for c in comparisons))
    systems = [name for name in SYSTEMS if name in chosen and set(SYSTEMS[name].measures) & set(what)]
    if not systems:
        parser.error(f"--what {args.what} means nothing for {' '.join(args.systems)}")
    setting = Setting(**{one.name: getattr(args, one.name) for one in fields(Setting)})
    return setting, comparisons, systems


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints the tables, writes the JSON file; returns the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    args = parser.parse_args(argv)
    setting, comparisons, systems = settle(parser, args)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    ran = provenance(["python", "benchmarks/speed.py", *argv], setting.device == "cuda")
    what = MEASURES if args.what == "all" else (args.what,)
    target_tokens = make_batch(setting, numbered_dictionary(setting.vocabulary))["ntokens"]
    results = measure(setting, systems, what, args.warmup, args.repetitions)
    compared = [compare(comparison, results) for comparison in comparisons]
    print(f"`{ran['command']}`")
    for facts in (ran, asdict(setting)):
        print("\n" + ", ".join(f"{key.replace('_', ' ')} {facts[key]}" for key in facts if key != "command"))
    print("\n" + system_table(results, setting.sentences, target_tokens))
    if "memory" in what:
        print("\n" + MEMORY_NOTES[setting.device])
        if set(ONE_STEP) <= set(results):
            print(f"One RK4 step of the encoder holds {one_step(results) / 2**20:.1f} MiB ({' − '.join(ONE_STEP)}).")
    if compared:
        print("\nA ratio of times or speeds is the median of the ratios within each round.\n")
        print(comparison_table(compared))
    if args.json is not None:
        everything = {"ran": ran, "setting": asdict(setting), "target_tokens": target_tokens}
        everything |= {"systems": {name: asdict(SYSTEMS[name]) for name in systems}}
        everything |= {"results": results, "comparisons": compared}
        args.json.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
