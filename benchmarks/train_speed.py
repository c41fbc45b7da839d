"""Whole trainings by fairseq-train, fairseq's transformer beside ours: tokens a second of the trainer's own log.

Each training validates and saves checkpoints. The first epoch, in which shapes are recorded, does not count. DATA is a
binarised folder of ``ode-transformer prepare``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ode_transformer.support.arguments import positive_int
from ode_transformer.support.commands import USER_DIR

_SIZES = {
    "base": {"embed-dim": 512, "ffn-embed-dim": 2048, "attention-heads": 8},
    "tiny": {"embed-dim": 128, "ffn-embed-dim": 256, "attention-heads": 4},
}
_FUSED = ("--optimizer", "fused_adam", "--criterion", "fused_label_smoothed_cross_entropy")
_EULER = ("--arch", "ode_transformer_euler", *_FUSED)
_RK2 = ("--arch", "ode_transformer_euler", "--encoder-ode-scheme", "rk2", *_FUSED)
_FAIRSEQ = (
    *("--arch", "transformer", "--encoder-normalize-before", "--decoder-normalize-before"),
    *("--optimizer", "adam", "--criterion", "label_smoothed_cross_entropy"),
)
# name -> flags, layers of the encoder
SYSTEMS: dict[str, tuple[tuple[str, ...], int]] = {
    "fairseq-6": (_FAIRSEQ, 6),
    "euler-6": (_EULER, 6),
    "euler-6-recorded": ((*_EULER, "--cuda-graphs"), 6),
    "fairseq-12": (_FAIRSEQ, 12),
    "rk2-6": (_RK2, 6),
    "rk2-6-recorded": ((*_RK2, "--cuda-graphs"), 6),
}


def command(data: Path, name: str, args: argparse.Namespace, folder: str) -> list[str]:
    """Return the command line of a training."""
    flags, layers = SYSTEMS[name]
    sizes = [
        word
        for key, size in _SIZES[args.size].items()
        for stack in ("encoder", "decoder")
        for word in (f"--{stack}-{key}", str(size))
    ]
    half = "--fp16" if name.startswith("fairseq") else "--memory-efficient-fp16"
    return [
        *(f"{sysconfig.get_path('scripts')}/fairseq-train", str(data)),
        *("--user-dir", str(args.user_dir or USER_DIR.get())),
        *("--task", "translation", "--share-all-embeddings", *sizes, *flags),
        *("--encoder-layers", str(layers), "--decoder-layers", "6", *(["--cpu"] if args.cpu else [half])),
        *("--max-tokens", str(args.max_tokens), "--max-update", str(args.updates), "--seed", "1"),
        *(
            "--lr",
            "0.0007",
            "--lr-scheduler",
            "inverse_sqrt",
            "--warmup-updates",
            "4000",
            "--adam-betas",
            "(0.9, 0.98)",
        ),
        *("--dropout", "0.1", "--label-smoothing", "0.1", "--clip-norm", "0", "--num-workers", "1"),
        *("--update-epoch-batch-itr", "True", "--save-dir", folder, "--keep-last-epochs", "1"),
        *("--log-format", "json", "--log-interval", "20"),
    ]


def speeds(log: str) -> list[float]:
    """Return the tokens a second of each report after the first epoch; of all reports if there is one epoch alone."""
    reports = [json.loads(line) for line in re.findall(r"\| train_inner \| (\{.*\})", log)]
    later = [report for report in reports if int(report["epoch"]) > 1] or reports[1:]
    return [float(report["wps"]) for report in later if report.get("wps") is not None]


def recording_seconds(log: str) -> float:
    """Return the seconds in which a training recorded its shapes."""
    return sum(float(seconds) for seconds in re.findall(r"\| train \| .*\"train_recording_s\": \"([\d.]+)\"", log))


def main(argv: Sequence[str] | None = None) -> int:
    """Train all systems in turns and print a table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--size", choices=_SIZES, default="base")
    parser.add_argument("--max-tokens", type=positive_int, default=4096, metavar="N")
    parser.add_argument("--updates", type=positive_int, default=600, metavar="N", help="of each training")
    parser.add_argument("--seconds", type=positive_int, default=110, metavar="N", help="limit of each training")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--user-dir", metavar="DIR", help="in place of ode_transformer's")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all reports")
    args = parser.parse_args(argv)
    results: dict[str, list[float]] = {}
    recorded: dict[str, float] = {}
    for name in args.systems:
        with tempfile.TemporaryDirectory() as folder:
            words = ["timeout", str(args.seconds), *command(args.data, name, args, folder)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        results[name] = speeds(done.stdout + done.stderr)
        recorded[name] = recording_seconds(done.stdout + done.stderr)
        if not results[name]:
            print(f"{name}: no report after the first; status {done.returncode}\n{done.stderr[-800:]}", file=sys.stderr)
        if args.json is not None:
            args.json.write_text(
                json.dumps(
                    {"settings": vars(args), "tokens_a_second": results, "recording_seconds": recorded},
                    default=str,
                    indent=1,
                )
            )
    print("| system | tokens a second, median | reports | s of recording |\n|---|---:|---:|---:|")
    for name, values in results.items():
        speed = f"{median(values):,.0f}" if values else "–"
        print(f"| {name} | {speed} | {len(values)} | {recorded[name]:.1f} |")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
