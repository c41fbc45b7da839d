"""Speed and memory of ODE Transformers, side by side with fairseq's own ``transformer``.

    python benchmarks/speed.py                          # WMT base, all comparisons
    python benchmarks/speed.py --size tiny --what train --systems euler-6 fairseq-6
    python benchmarks/speed.py --size iwslt --beam 5 --systems fairseq-6 reformer-fast-5 reformer-base-7
    python benchmarks/speed.py --preset table6-big      # Table 6 of ODE Transformer, on a GPU
    python benchmarks/speed.py ... --check docs/results/speed_training.json      # has a ratio worsened?

All systems have the same widths, vocabulary, dropout rates, batch and seed. They take turns (A B C A B C ...), so that
whatever slows the machine slows all of them; a ratio is the median of the ratios within each round. A training step is
forward, label-smoothed cross entropy, backward and Adam; its operations are those of its matrix products. Decoding is
beam search at a fixed length, fairseq's for its own model, that of ``ode-transformer translate`` for ours. Memory is
that of one forward and backward pass of a system alone, beyond parameters, gradients and Adam's moments: on a GPU as
PyTorch's allocator counts it, on a CPU as the bytes of the tensors that operators return.

All models are in memory at once: with WMT base, all systems and Adam about 14 GB.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measuring import DTYPES, MeasuredSystem, Setting, make_batch
from regressions import change_table, compare_with_record, recorded_ratios
from reporting import MEMORY_NOTES, comparison_table, system_table
from systems import COMPARISONS, MEASURES, ONE_STEP, RELATIONS, SIZES, SYSTEMS, Comparison
from table6 import PRESETS, published_table

from ode_transformer.models.model_from_options import numbered_dictionary
from ode_transformer.nn.int8 import convert_to_int8
from ode_transformer.support.arguments import flag_name, positive_int, probability
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_writable, write_text
from ode_transformer.support.provenance import provenance

# system -> train, update, decode: seconds of each round, with _cpu those of the CPU; held, peak: bytes; operations of
# a training step
Measurements = dict[str, dict[str, Any]]


def measure(
    setting: Setting, names: Iterable[str], measures: Sequence[str], warmup: int, repetitions: int
) -> Measurements:
    """Measure systems: the memory of one after the other, times in turn."""
    systems = {name: SYSTEMS[name] for name in SYSTEMS if name in set(names)}
    results: Measurements = {name: {} for name in systems}

    def build(name: str) -> MeasuredSystem:
        chosen = systems[name]
        if chosen.export is None:
            system = MeasuredSystem(chosen.arch, chosen.options, setting, chosen.fused)
        else:
            from ctranslate2_decoding import CTranslate2System  # needs the extra export

            threads = torch.get_num_threads()
            system = CTranslate2System(chosen.arch, chosen.options, setting, chosen.export, threads)
        results[name]["parameters"] = system.parameters
        return system

    for name in systems:
        if "memory" in measures:
            _progress(f"memory of {name}")
            results[name]["held"], results[name]["peak"] = build(name).memory()
            gc.collect()
    timed = [
        (kind, [name for name in systems if kind in systems[name].measures])
        for kind in ("train", "decode")  # in this order: a model prepared for decoding cannot be trained
        if kind in measures
    ]
    built = {name: build(name) for name in systems if any(name in turn for _, turn in timed)}
    for kind, turn in timed:
        if kind == "train":
            for name in turn:
                results[name]["operations"] = built[name].operations()
        else:
            for name in turn:
                built[name].prepare_to_decode()
                if systems[name].int8:
                    convert_to_int8(built[name].model)
        for number in range(warmup + repetitions):
            _progress(f"{kind}, round {number + 1} of {warmup + repetitions}")
            for name in turn:
                seconds = built[name].train_step() if kind == "train" else built[name].decode()
                for key, value in seconds.items():
                    if number >= warmup:
                        results[name].setdefault(key, []).append(value)
    return results


def _progress(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def one_step(results: Measurements) -> int:
    """Return the bytes that one RK4 step of the encoder holds for the backward pass."""
    six_steps, five_steps = (results[name]["held"] for name in ONE_STEP)
    return six_steps - five_steps


def compare(comparison: Comparison, results: Measurements, size: str = "base", cpu: bool = True) -> dict[str, Any]:
    """Return the ratios of one comparison, their median, and whether the aim is met.

    :param size: one of ``SIZES``, for the aim
    :param cpu: judge times by the CPU seconds of the process, which other processes change least; otherwise by the wall
        clock, as on a GPU. The ratios of the wall clock are ``wall_ratios``
    """
    system, baseline = results[comparison.system], results[comparison.baseline]
    outcome = {"name": comparison.name, **asdict(comparison), "aim": comparison.aim_for(size)}
    del outcome["tiny_aim"]
    if comparison.measure == "memory":
        step = one_step(results) if comparison.less_one_step else 0
        outcome["ratios"] = [(system["peak"] - step) / baseline["peak"]]
    else:
        wall = _ratios(comparison, system, baseline, comparison.measure)
        outcome["wall_ratios"] = wall
        outcome["ratios"] = _ratios(comparison, system, baseline, f"{comparison.measure}_cpu") if cpu else wall
    outcome["median"] = median(outcome["ratios"])
    if outcome["aim"] is not None:
        relation, bound = outcome["aim"]
        outcome["met"] = RELATIONS[relation](outcome["median"], bound)
    return outcome


def _ratios(comparison: Comparison, system: dict[str, Any], baseline: dict[str, Any], key: str) -> list[float]:
    pairs = zip(system[key], baseline[key], strict=True)
    ratios = [a / b if comparison.measure == "train" else b / a for a, b in pairs]
    if comparison.per_operation:
        ratios = [ratio * baseline["operations"] / system["operations"] for ratio in ratios]
    return ratios


def repetition_count(text: str) -> int:
    """Parse a whole number from 5 on."""
    if positive_int(text) < 5:
        raise argparse.ArgumentTypeError(f"{text} is too few: medians are of at least 5")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    description, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="speed.py",
        usage="%(prog)s [options]",
        description=description,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    pairs = sorted({comparison.name for comparison in COMPARISONS})
    add_exclusive = parser.add_mutually_exclusive_group().add_argument
    add_exclusive("--systems", nargs="+", choices=SYSTEMS, metavar="NAME", help=f"default: all of {', '.join(SYSTEMS)}")
    add_exclusive("--comparisons", nargs="+", choices=pairs, metavar="A/B", help=f"default: all of {', '.join(pairs)}")
    add(
        "--preset",
        choices=PRESETS,
        help="systems, size, batch and device of a published table; options replace its values",
    )
    add("--what", choices=(*MEASURES, "all"), default="all", help="measure to take (default: all)")
    add("--size", choices=SIZES, default="base", help="preset for the next five options (default: base)")
    for name in SIZES["base"]:
        add(flag_name(name), type=positive_int, metavar="N", help="default: from the preset")
    add("--sentences", type=positive_int, default=24, metavar="N", help="sentences in the batch (default: %(default)s)")
    add("--source-length", type=positive_int, default=25, metavar="N", help="mean, in tokens (default: %(default)s)")
    add(
        "--target-length",
        type=positive_int,
        default=25,
        metavar="N",
        help="the same for targets; decoding: length of every hypothesis",
    )
    add("--length-spread", type=probability, default=0.2, metavar="P", help="lengths are mean · (1 ± P) (default: 0.2)")
    add("--beam", type=positive_int, default=4, metavar="N", help="default: %(default)s")
    add("--repetitions", type=repetition_count, default=5, metavar="N", help="measured rounds, at least 5 (default: 5)")
    add("--warmup", type=positive_int, default=1, metavar="N", help="rounds before them (default: %(default)s)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    add("--precision", choices=DTYPES, default="fp32", help="fp16 and bf16 as fairseq's flags, only on cuda")
    add("--threads", type=positive_int, metavar="N", help="default: PyTorch's choice")
    add("--no-onednn", action="store_true", help="let our linear maps multiply by MKL, as fairseq's do")
    add("--seed", type=positive_int, default=1, metavar="N", help="default: %(default)s")
    add("--json", type=Path, metavar="FILE", help="file for settings and all single measurements")
    add(
        "--check",
        type=Path,
        metavar="FILE",
        help="file of --json: fail if a ratio has worsened since by more than the noise of both measurements",
    )
    return parser


def read_options(
    parser: argparse.ArgumentParser, args: argparse.Namespace
) -> tuple[Setting, list[Comparison], list[str]]:
    """Fill in sizes from the preset and choose comparisons and systems; exit in one line if options contradict.

    :returns: the setting, the comparisons, the names of the systems to measure
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
            parser.error(f"{flag_name(name)} {getattr(args, name)} is too long: fairseq has 1,024 positions")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this PyTorch finds no GPU")
    if args.device == "cpu" and args.precision != "fp32":
        parser.error(f"--precision {args.precision} needs --device cuda: on a CPU it would measure conversions")
    if args.json is not None:
        try:
            check_writable(args.json)
        except UserError as error:
            parser.error(f"--json {error}")
    if args.check is not None and not args.check.is_file():
        parser.error(f"--check {args.check}: no such file")
    measures = _measures(args)
    comparisons = [
        c for c in COMPARISONS if c.measure in measures and (not args.comparisons or c.name in args.comparisons)
    ]
    if args.comparisons and not comparisons:
        parser.error(f"--what {args.what} does not measure what --comparisons {' '.join(args.comparisons)} compare")
    if args.systems:
        comparisons = [c for c in comparisons if c.required_systems <= set(args.systems)]
    chosen = set(args.systems or SYSTEMS)
    if args.comparisons:
        chosen = set().union(*(c.required_systems for c in comparisons))
    systems = [name for name in SYSTEMS if name in chosen and set(SYSTEMS[name].measures) & set(measures)]
    if not systems:
        parser.error(f"--what {args.what} means nothing for {' '.join(args.systems)}")
    setting = Setting(**{field.name: getattr(args, field.name) for field in fields(Setting)})
    return setting, comparisons, systems


def _measures(args: argparse.Namespace) -> tuple[str, ...]:
    return MEASURES if args.what == "all" else (args.what,)


def parse_with_preset(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; the values of its preset are defaults."""
    chosen = parser.parse_args(argv)
    if chosen.preset is not None:
        parser.set_defaults(**PRESETS[chosen.preset])
        if chosen.comparisons:
            parser.set_defaults(systems=None)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the JSON file; return the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    args = parse_with_preset(parser, argv)
    setting, comparisons, systems = read_options(parser, args)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    recorded = None
    if args.check is not None:
        try:
            to_come = asdict(setting) | {"threads": torch.get_num_threads()}
            recorded = recorded_ratios(args.check, to_come, comparisons)
        except UserError as error:
            parser.error(f"--check {error}")
    if setting.no_onednn:
        torch.backends.mkldnn.set_flags(False)
    origin = provenance(["python", "benchmarks/speed.py", *argv], setting.device == "cuda")
    measures = _measures(args)
    target_tokens = make_batch(setting, numbered_dictionary(setting.vocabulary))["ntokens"]
    results = measure(setting, systems, measures, args.warmup, args.repetitions)
    cpu = setting.device == "cpu"
    outcomes = [compare(comparison, results, args.size, cpu) for comparison in comparisons]
    print(f"`{origin['command']}`")
    for facts in (origin, asdict(setting)):
        print("\n" + ", ".join(f"{key.replace('_', ' ')} {facts[key]}" for key in facts if key != "command"))
    print("\n" + system_table(results, setting.sentences, target_tokens))
    if "memory" in measures:
        print("\n" + MEMORY_NOTES[setting.device])
        if set(ONE_STEP) <= set(results):
            print(f"One RK4 step of the encoder holds {one_step(results) / 2**20:.1f} MiB ({' − '.join(ONE_STEP)}).")
    if args.preset is not None and args.size == PRESETS[args.preset]["size"]:
        print("\n" + published_table(results, args.size, setting.sentences))
    if outcomes:
        clock = "CPU seconds of the process" if cpu else "seconds"
        print(f"\nA ratio of times or speeds is the median of the ratios within each round, in {clock}.\n")
        print(comparison_table(outcomes))
    if args.json is not None:
        record = {"ran": origin, "setting": asdict(setting), "target_tokens": target_tokens}
        record |= {"systems": {name: asdict(SYSTEMS[name]) for name in systems}}
        record |= {"results": results, "comparisons": outcomes}
        write_text(args.json, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    if recorded is not None:
        changes = compare_with_record(outcomes, recorded)
        print("\n" + change_table(changes))
        return int(any(change.worsened for change in changes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
