"""Speed and memory of ODE Transformers, side by side with fairseq's own ``transformer``.

    python benchmarks/speed.py                          # WMT base, all comparisons
    python benchmarks/speed.py --size tiny --what train --systems euler-6 fairseq-6
    python benchmarks/speed.py --size iwslt --beam 5 --systems fairseq-6 reformer-fast-5 reformer-base-7
    python benchmarks/speed.py --preset table6-big      # Table 6 of ODE Transformer, on a GPU

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
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measuring import DTYPES, CTranslate2System, MarianSystem, MeasuredSystem, Setting, make_batch
from reporting import comparison_table, system_table
from systems import COMPARISONS, MEASURES, PER_OPERATION, PRESETS, SIZES, SYSTEMS

from ode_transformer.models.model_from_options import numbered_dictionary
from ode_transformer.nn.int8 import convert_to_int8
from ode_transformer.support.arguments import flag_name, positive_int, probability
from ode_transformer.support.files import write_text
from ode_transformer.support.provenance import provenance

# system -> train, update, decode: seconds of each round, with _cpu those of the CPU; held, peak: bytes; operations of
# a training step, and kernels of its passes
Measurements = dict[str, dict[str, Any]]


def measure_systems(
    setting: Setting, names: Sequence[str], measures: Sequence[str], warmup: int, repetitions: int
) -> Measurements:
    """Measure systems: the memory of one after the other, times in turn."""
    results: Measurements = {name: {} for name in SYSTEMS if name in names}

    def build(name: str) -> MeasuredSystem:
        chosen = SYSTEMS[name]
        system: MeasuredSystem
        if chosen.arch == "marian":
            system = MarianSystem(chosen.options, setting)
        else:
            system = MeasuredSystem(chosen.arch, chosen.options, setting, chosen.fused, chosen.graphs, chosen.recorded)
        if chosen.export is not None:
            system = CTranslate2System(chosen.arch, chosen.options, setting, chosen.export)
        results[name]["parameters"] = system.parameters
        return system

    for name in results if "memory" in measures else ():
        _progress(f"memory of {name}")
        results[name]["held"], results[name]["peak"] = build(name).memory()
        gc.collect()
    if any(SYSTEMS[name].recorded for name in results):
        warmup = max(warmup, 2)  # a step is recorded when its shape comes the second time
    turns = {
        kind: [name for name in results if kind in SYSTEMS[name].measures]
        for kind in ("train", "decode")  # in this order: a model prepared for decoding cannot be trained
        if kind in measures
    }
    built = {name: build(name) for name in results if any(name in turn for turn in turns.values())}
    for name in turns.get("train", ()):
        results[name]["operations"] = built[name].operations()
    for kind, turn in turns.items():
        for name in turn if kind == "decode" else ():
            built[name].prepare_to_decode()
            if SYSTEMS[name].int8:
                convert_to_int8(built[name].model)
        for number in range(warmup + repetitions):
            _progress(f"{kind}, round {number + 1} of {warmup + repetitions}")
            for name in turn:
                seconds = built[name].train_step() if kind == "train" else built[name].decode()
                for key, value in seconds.items() if number >= warmup else ():
                    results[name].setdefault(key, []).append(value)
        for name in turn if kind == "train" else ():
            if not SYSTEMS[name].recorded:
                results[name]["kernels"] = built[name].kernels()
    return results


def _progress(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def compare(measure: str, name: str, results: Measurements, cpu: bool = True) -> dict[str, Any]:
    """Return the ratios of one comparison and their median.

    :param name: system and baseline, as in ``COMPARISONS``
    :param cpu: compare the CPU seconds of the process, which other processes change least; otherwise those of the wall
        clock, as on a GPU. The ratios of the wall clock are ``wall_ratios``
    """
    system, baseline = (results[part] for part in name.split("/"))
    outcome: dict[str, Any] = {"measure": measure, "name": name, "per_operation": (measure, name) == PER_OPERATION}
    if measure == "memory":
        ratios = [system["peak"] / baseline["peak"]]
    else:
        operations = baseline["operations"] / system["operations"] if outcome["per_operation"] else 1.0

        def ratios_of(key: str) -> list[float]:
            pairs = zip(system[key], baseline[key], strict=True)
            return [operations * (a / b if measure == "train" else b / a) for a, b in pairs]

        outcome["wall_ratios"] = ratios_of(measure)
        ratios = ratios_of(f"{measure}_cpu") if cpu else outcome["wall_ratios"]
    return outcome | {"ratios": ratios, "median": median(ratios)}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    names = ", ".join(SYSTEMS)
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME", help=f"default: all of {names}")
    add("--preset", choices=PRESETS, help="systems, size, batch and device of a published table, as defaults")
    add("--what", nargs="+", choices=MEASURES, default=MEASURES, help="measures to take (default: all)")
    add("--size", choices=SIZES, default="base", help="default of the next five options (default: base)")
    for name in SIZES["base"]:
        add(flag_name(name), type=positive_int, metavar="N", help="default: that of --size")
    numbers = {
        "sentences": (24, "sentences in the batch"),
        "source_length": (25, "mean, in tokens"),
        "target_length": (25, "the same for targets; in decoding, the length of every hypothesis"),
        "beam": (4, "beam size"),
        "repetitions": (5, "measured rounds"),
        "warmup": (1, "rounds before them"),
        "seed": (1, "random seed"),
        "threads": (torch.get_num_threads(), "threads of PyTorch"),
    }
    for name, (default, text) in numbers.items():
        add(flag_name(name), type=positive_int, default=default, metavar="N", help=f"{text} (default: {default})")
    add("--length-spread", type=probability, default=0.2, metavar="P", help="lengths are mean · (1 ± P) (default: 0.2)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    add("--precision", choices=DTYPES, default="fp32", help="fp16 and bf16 as fairseq's flags, only on cuda")
    add("--json", type=Path, metavar="FILE", help="file for settings and all single measurements")
    return parser


def read_options(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line, with the values of its preset and of its size as defaults."""
    parser = build_parser()
    if (preset := parser.parse_args(argv).preset) is not None:
        parser.set_defaults(**PRESETS[preset])
    parser.set_defaults(**SIZES[parser.parse_args(argv).size])
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the JSON file; return the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    args = read_options(argv)
    systems = [name for name in SYSTEMS if name in args.systems and {*SYSTEMS[name].measures} & {*args.what}]
    if find_spec("transformers") is None:
        systems = [name for name in systems if SYSTEMS[name].arch != "marian"]
    setting = Setting(**{field.name: getattr(args, field.name) for field in fields(Setting)})
    torch.set_num_threads(args.threads)
    cpu = setting.device == "cpu"
    origin = provenance(["python", "benchmarks/speed.py", *argv], not cpu)
    target_tokens = make_batch(setting, numbered_dictionary(setting.vocabulary))["ntokens"]
    results = measure_systems(setting, systems, args.what, args.warmup, args.repetitions)
    outcomes = [
        compare(measure, name, results, cpu)
        for measure in args.what
        for name in COMPARISONS[measure]
        if {*name.split("/")} <= results.keys()
    ]
    print(f"`{origin['command']}`")
    for facts in (origin, asdict(setting)):
        print("\n" + ", ".join(f"{key.replace('_', ' ')} {facts[key]}" for key in facts if key != "command"))
    print("\n" + system_table(results, setting.sentences, target_tokens))
    if outcomes:
        clock = "CPU seconds of the process" if cpu else "seconds"
        print(f"\nA ratio of times or speeds is the median of the ratios within each round, in {clock}.\n")
        print(comparison_table(outcomes))
    if args.json is not None:
        record = {"ran": origin, "setting": asdict(setting), "target_tokens": target_tokens}
        record |= {"systems": {name: asdict(SYSTEMS[name]) for name in systems}}
        record |= {"results": results, "comparisons": outcomes}
        write_text(args.json, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
