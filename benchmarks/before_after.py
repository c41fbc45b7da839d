"""Speed and memory of an earlier commit beside this one, and of this one without some of its parts, on one thread.

    git worktree add ../before 15c41d9
    python benchmarks/before_after.py ../before --size tiny --systems euler-6 rk2-gate-6 --json before_after.json
    python benchmarks/before_after.py ../before --size tiny --systems euler-6 --without dropout loss --json parts.json

Each side is a process, which takes its turn in every round. A ratio above 1 is slower than before, or without a part
slower than with it. Times are CPU seconds of the process, ``memory`` is what a forward pass keeps for the backward one,
``peak`` the peak of both.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent.parent
KINDS = ("train", "decode", "memory", "peak")
PARTS = ("dropout", "loss", "attention", "onednn")


def leave_out(part: str) -> None:
    """Replace a part of the package by PyTorch's or fairseq's own, or, of oneDNN, use it where the package does not."""
    import torch
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

    replacements: dict[str, tuple[str, Any]] = {
        "dropout": ("ode_transformer.nn.dropout.dropout", lambda x, p: torch.nn.functional.dropout(x, p)),
        "loss": ("measuring.FusedCriterion", LabelSmoothedCrossEntropyCriterion),
        "attention": (  # explicit scores
            "ode_transformer.nn.MultiheadAttention._explicit",
            lambda self, q, k, v, bias, *_: self._fused(q, k, v, bias, False),
        ),
        "onednn": ("ode_transformer.nn.linear.ONEDNN_LINEAR", torch.ops.mkldnn._linear_pointwise),
    }
    if part:
        patch(*replacements[part]).start()


def work(tree: str, size: str, part: str) -> None:
    """Measure as the lines of the standard input say, each a system, a kind and whether the system is new."""
    sys.path[:0] = [tree, f"{tree}/benchmarks"]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    import measuring
    import torch
    from systems import SIZES, SYSTEMS

    import ode_transformer

    assert Path(ode_transformer.__file__).is_relative_to(tree)
    torch.set_num_threads(1)
    leave_out(part)
    batch: dict[str, Any] = {
        "sentences": 24,
        "source_length": 25,
        "target_length": 25,
        "length_spread": 0.2,
        "beam": 4,
        "seed": 1,
    }
    setting = measuring.Setting(**SIZES[size], **batch, device="cpu", precision="fp32")
    for line in sys.stdin:
        name, kind, is_new = json.loads(line)
        if is_new:
            system = measuring.MeasuredSystem(SYSTEMS[name].arch, SYSTEMS[name].options, setting, fused=True)
            if kind == "decode":
                system.prepare_to_decode()
        if kind in ("memory", "peak"):
            value: float = system.memory()[kind == "peak"]
        else:
            value = (system.train_step() if kind == "train" else system.decode())[f"{kind}_cpu"]
        print(json.dumps(value), file=answers, flush=True)


def main() -> None:
    """Measure both sides in turn, print the ratios and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="working tree of the earlier commit")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--systems", nargs="+", required=True, metavar="NAME")
    parser.add_argument("--what", nargs="+", choices=KINDS, default=["train"])
    parser.add_argument("--without", nargs="+", choices=PARTS, default=[], help="parts, in place of the earlier commit")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    from ode_transformer.support.commands import GNU_C_LIBRARY  # as our commands start fairseq
    from ode_transformer.support.provenance import provenance

    ran = provenance(["python", *sys.argv], on_gpu=False, threads=1)
    before = args.before.resolve()
    ran["before"] = subprocess.check_output(["git", "-C", before, "rev-parse", "--short", "HEAD"], text=True).strip()
    sides = {"now": (HERE, "")} | {part: (HERE, part) for part in args.without}
    if not args.without:
        sides["before"] = before, ""
    workers = {}
    for side, (tree, part) in sides.items():
        command = [sys.executable, __file__, "--work", str(tree), args.size, part]
        workers[side] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | GNU_C_LIBRARY
        )

    def measure(side: str, *request: Any) -> float:
        worker = workers[side]
        assert worker.stdin is not None
        assert worker.stdout is not None
        print(json.dumps(request), file=worker.stdin, flush=True)
        return float(json.loads(worker.stdout.readline()))

    results: dict[str, Any] = {}
    comparisons = []
    for name, kind in [(name, kind) for kind in args.what for name in args.systems]:
        values: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(1 if kind in ("memory", "peak") else args.rounds + 1):
            order = list(sides) if number % 2 else list(sides)[::-1]
            for side in order:
                value = measure(side, name, kind, number == 0)
                if number > 0 or kind in ("memory", "peak"):  # the first step also allocates
                    values[side].append(value)
        results[f"{name} {kind}"] = values
        for side in list(sides)[1:]:
            pairs = zip(values["now"], values[side], strict=True)
            ratios = [now / other if side == "before" else other / now for now, other in pairs]
            title = name if side == "before" else f"{name} without {side}"
            comparisons.append({"name": title, "measure": kind, "ratios": ratios})
            quartiles = [f"{x:.2f}" for x in (quantiles(ratios) if len(ratios) > 1 else ratios)]
            print(f"{args.size} {title}, {kind}: {median(ratios):.2f}, quartiles {quartiles}", flush=True)
        args.json.write_text(json.dumps({"ran": ran, "results": results, "comparisons": comparisons}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
