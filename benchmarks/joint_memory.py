"""Memory of one training batch of a Reformer, to choose --max-joint-cells for a GPU.

    python benchmarks/joint_memory.py --tokens 4096 --length 25 --precision bf16

All sentences have the same length on both sides. Parameters, gradients and Adam's moments are not counted. A GPU is
measured by PyTorch's allocator, a CPU by the bytes of the tensors that operators return, while they are alive. On a CPU
a measurement of 100,000 cells takes minutes, and as much memory as it reports.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from types import SimpleNamespace

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from measuring import DTYPES, memory_of

from ode_transformer.models.model_from_options import build_from_options
from ode_transformer.support.arguments import cell_count, positive_int

SOURCE, TARGET = 8848, 6632  # entries of the dictionaries of IWSLT'14 German–English


def measure(options: Namespace, sentences: int, length: int, precision: str, device: str) -> tuple[int, int]:
    """Return the bytes that the forward pass leaves for the backward pass, and the peak of both passes."""
    torch.manual_seed(1)
    model = build_from_options(options, SOURCE, TARGET).to(device=device, dtype=DTYPES[precision]).train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    dictionary: Dictionary = model.decoder.dictionary
    source, target = (torch.randint(4, size, (sentences, length), device=device) for size in (SOURCE, TARGET))
    lengths = torch.full((sentences,), length, device=device)
    batch = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": target}
    sample = {"net_input": batch, "target": target, "ntokens": target.numel()}
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    return memory_of(lambda: criterion(model, sample)[0], device)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    description, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="joint_memory.py",
        description=description,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--arch", default="reformer_fast_iwslt_de_en", help="default: %(default)s")
    add(
        "--tokens", type=positive_int, default=4096, metavar="N", help="tokens of a batch, on each side (default: 4096)"
    )
    add("--length", type=positive_int, default=25, metavar="N", help="tokens of every sentence (default: 25)")
    add("--max-joint-cells", type=cell_count, metavar="N", help="cells at a time (default: the architecture's)")
    add("--checkpoint-activations", action="store_true", help="recompute activations, as the same flag in training")
    add("--precision", choices=DTYPES, default="fp32", help="default: %(default)s")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure one batch and print a line."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if ARCH_MODEL_NAME_REGISTRY.get(args.arch) != "reformer":
        parser.error(f"--arch {args.arch}: not a Reformer")
    if args.tokens < args.length:
        parser.error(f"--tokens {args.tokens} are less than one sentence of --length {args.length}")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this PyTorch finds no GPU")
    options = Namespace(arch=args.arch, checkpoint_activations=args.checkpoint_activations)
    if args.max_joint_cells is not None:
        options.max_joint_cells = args.max_joint_cells
    sentences = args.tokens // args.length
    held, peak = measure(options, sentences, args.length, args.precision, args.device)
    cells = sentences * args.length**2
    limit = options.max_joint_cells or cells
    print(
        f"{args.arch}, {args.precision}: {sentences} pairs of {args.length} × {args.length}, {cells:,} cells, at most "
        f"{min(limit, cells):,} at one time: held {held / 2**20:,.0f} MiB, peak {peak / 2**20:,.0f} MiB, "
        f"{peak / min(limit, cells) / 2**10:.1f} KiB for each of these cells"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
