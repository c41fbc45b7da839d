"""What a GPU is given in a recorded training step and in a search step, counted in seconds without a GPU.

    python benchmarks/launches.py                                  # the recorded systems of docs/results/speed.md
    python benchmarks/launches.py euler-6-recorded --sentences 665 --parts
    python benchmarks/launches.py --csv docs/results/studies/launches.csv   # at all sizes; tests/benchmarks holds it

Steps run on meta tensors, which have shapes and no numbers. Each operator is noted with its launches, the bytes that it
reads and writes, and the operations of products of matrices. Their time on an H200 in half precision is estimated as

    launches · 2.95 µs + bytes outside products of matrices / (2.9 TB/s)
        + the longer of operations / (600 TFLOP/s) and bytes of products / (2.9 TB/s)

with constants fitted to euler-6 at 512, 4,096 and 16,384 tokens. A training step is its forward and backward pass,
without the update; a search step is one position of a beam of 4. In the file, ``of_fairseq`` is the estimate with an
update beside the measured time of fairseq's model of as many operations.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from measuring import MeasuredSystem, Setting
from systems import SIZES, SYSTEMS
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ode_transformer.decoding.recorded_search import RecordedSearch, RecordedSearches
from ode_transformer.nn import Decoder, Ensemble, FixedCache, SearchOptions
from ode_transformer.speed import kernels
from ode_transformer.speed.recording import Compute, recording
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import markdown_table

LAUNCH_SECONDS, BYTES_A_SECOND, OPERATIONS_A_SECOND = 2.95e-6, 2.9e12, 600e12
UPDATE_SECONDS = 2.1e-3  # of a base model: what the H200 measured of euler-6 beyond both passes
# Recorded system -> fairseq's model of as many operations
TRAINED = {"euler-6-recorded": "fairseq-6", "rk2-6-recorded": "fairseq-12", "rk4-6-recorded": "fairseq-24"}
# Tokens of a batch -> sentences of 25 tokens, none of which a recording pads
SENTENCES = {"512": 20, "4096": 163, "16384": 665}
# Tokens of a batch -> fairseq's times on the H200
MEASURED = {"512": "speed_recorded_512", "4096": "speed_recorded", "16384": "speed_recorded_16k"}
SEARCHED = ("euler-6-graphs",)  # other encoders have the same search step
# Kernels that no GPU has run yet, of a training step and of a search step
UNTRIED = {True: "loss sublayers attention", False: "search"}

RESULTS = Path(__file__).parents[1] / "docs" / "results"

# Views, allocations, and what a recording does once.
_NOT_LAUNCHED = {
    *("_reshape_alias", "_unsafe_view", "alias", "as_strided", "chunk", "detach", "diagonal", "expand", "lift_fresh"),
    *("movedim", "narrow", "permute", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose"),
    *("unbind", "unflatten", "unsqueeze", "view", "is_same_size"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
}
_FILLS = {"fill_", "full", "full_like", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "zero_", "zeros"}
_FILLS |= {"zeros_like", "arange"}
_LAUNCHES = {"embedding_dense_backward": 8, "native_layer_norm_backward": 2}
# Reductions over rows add up across blocks, for which a counter is set to zero.
_MEMSET_BEFORE = {"sum", "linalg_vector_norm"}
_CHUNK, _MOST_TENSORS, _MOST_CHUNKS = 65_536, 64, 320  # of a launch for many tensors
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # operator -> number of its first factor

# Part of a step by class of the innermost module; the output of a product of matrices is a part of its own.
PARTS = {
    "LayerHistory": "layer history",
    "LayerNorm": "normalisation",
    "MultiheadAttention": "attention",
    "RelativePositionKeys": "relative positions",
    "RelativePositionValues": "relative positions",
    "Linear": "biases",
    "Dropout": "dropout",
    "FeedForward": "activations",
    "Scheme": "sums of steps, residuals",
    "Layer": "sums of steps, residuals",
    "FairseqCriterion": "loss",
    "Stack": "embeddings, masks, joins",
    "FairseqEncoder": "embeddings, masks, joins",
    "FairseqDecoder": "embeddings, masks, joins",
}
_WITH_CONTENTS = {"layer history", "relative positions"}  # parts to which modules within them belong
PRODUCTS, GRADIENTS, CACHES, REST = "products of matrices", "gradients added", "caches", "everything else"


@dataclass
class Cost:
    """Launches, bytes and operations; bytes of products of matrices are apart, as their time is in their operations."""

    launches: int = 0
    bytes: int = 0
    product_bytes: int = 0
    operations: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def seconds(self) -> float:
        """Estimated time."""
        products = max(self.operations / OPERATIONS_A_SECOND, self.product_bytes / BYTES_A_SECOND)
        return self.launches * LAUNCH_SECONDS + self.bytes / BYTES_A_SECOND + products


def bytes_of(*tensors: Tensor | None) -> int:
    """Return the bytes of tensors; what a view repeats counts once."""
    sizes = [[n for n, stride in zip(x.shape, x.stride(), strict=True) if stride] for x in tensors if x is not None]
    numbers = [torch.Size(size).numel() for size in sizes]
    return sum(n * x.element_size() for n, x in zip(numbers, [x for x in tensors if x is not None], strict=True))


class Meter:
    """Costs of all operators within ``with meter.running():``, by part of the step.

    A part is that of the module in which an operator is called, or, in a backward pass, in which the operator was
    called whose gradient it computes.
    """

    def __init__(self, rest: str = REST) -> None:
        self.costs: dict[str, Cost] = defaultdict(Cost)
        self._parts = [rest]
        self._begins: list[tuple[int, str]] = [(-1, rest)]  # first number of a node of the gradient's graph, part

    @property
    def total(self) -> Cost:
        """The cost of all parts."""
        return sum(self.costs.values(), Cost())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Note what is computed within the ``with`` block."""
        with ExitStack() as stack:
            for handle in (
                register_module_forward_pre_hook(lambda module, _: self._enter(self._part_of(module))),
                register_module_forward_hook(lambda *_: self._leave(), always_call=True),
            ):
                stack.callback(handle.remove)
            stack.enter_context(patch.object(FixedCache, "write", self.within(CACHES, FixedCache.write)))
            # A step of a search is no call of the module.
            stack.enter_context(patch.object(Decoder, "step", self.within(PARTS["Stack"], Decoder.step)))
            launch = "ode_transformer.speed.kernels.launch"
            stack.enter_context(patch(launch, lambda kernel, grid, moved, *_, **__: self.note(Cost(1, moved))))
            stack.enter_context(_Operators(self))
            stack.enter_context(_FusedFunctions(self))
            yield

    def within(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose operators count for a part."""

        @wraps(function)
        def run(*arguments: Any, **options: Any) -> Any:
            self._enter(part)
            try:
                return function(*arguments, **options)
            finally:
                self._leave()

        return run

    def note(self, cost: Cost) -> None:
        """Add a cost to the present part."""
        node = torch._C._current_autograd_node()
        part = self._parts[-1]
        if node is not None:
            number = node._sequence_nr()
            is_leaf = type(node).__name__ == "AccumulateGrad"
            part = GRADIENTS if is_leaf else self._begins[bisect_right(self._begins, (number, "\uffff")) - 1][1]
        self.costs[PRODUCTS if cost.product_bytes and part not in _WITH_CONTENTS else part] += cost

    def _part_of(self, module: nn.Module) -> str:
        if self._parts[-1] in _WITH_CONTENTS:
            return self._parts[-1]
        classes = (cls.__name__ for cls in type(module).__mro__)
        return next((PARTS[name] for name in classes if name in PARTS), self._parts[-1])

    def _enter(self, part: str) -> None:
        self._parts.append(part)
        self._begins.append((torch.autograd._get_sequence_nr(), part))

    def _leave(self) -> None:
        self._parts.pop()
        self._begins.append((torch.autograd._get_sequence_nr(), self._parts[-1]))


class _Operators(TorchDispatchMode):
    """Notes each operator."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense" and args[0].device.type == "meta":  # a look at a mask, by fairseq's model
            return True
        result = func(*args, **(kwargs or {}))
        if name in _NOT_LAUNCHED:
            return result
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        outputs = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        if all(x.device.type != "meta" for x in (*inputs, *outputs)):
            return result
        cost = Cost(_LAUNCHES.get(name, 1))
        if name.startswith("_foreach_"):
            chunks = sum(-(-x.numel() // _CHUNK) for x in args[0])
            cost.launches = max(-(-len(args[0]) // _MOST_TENSORS), -(-chunks // _MOST_CHUNKS))
            cost.bytes = bytes_of(*inputs, *(() if name == "_foreach_copy_" else args[0]))
        elif name == "_fused_adamw_":  # reads θ, g, m and v and writes all of them
            cost.bytes = 2 * bytes_of(*(x for tensors in args[:4] for x in tensors))
        elif name in _PRODUCTS:
            first, second = args[_PRODUCTS[name]], args[_PRODUCTS[name] + 1]
            cost.product_bytes = bytes_of(*inputs, *outputs)
            cost.operations = 2 * first.numel() * second.size(-1)
        elif name in _FILLS:
            cost.bytes = bytes_of(*outputs)
        elif name in ("embedding", "embedding_dense_backward", "gather", "index_select"):  # of a table, what is read
            cost.bytes = bytes_of(*inputs[1:], *outputs, *outputs)
        elif name in ("scatter_add_", "scatter_", "index_copy_"):
            written = inputs[-1] if len(inputs) > 2 else inputs[1]
            cost.bytes = bytes_of(inputs[1], written, written)
        elif name == "copy_":
            cost.bytes = bytes_of(*inputs)
        else:
            cost.bytes = bytes_of(*inputs, *outputs)
        if name in _MEMSET_BEFORE and outputs[0].numel() < inputs[0].numel() // 32:
            cost.launches += 1
        self.meter.note(cost)
        return result


class _FusedFunctions(TorchFunctionMode):
    """Notes dropout and attention as the kernels that a GPU has for them."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.dropout:
            return self._dropout(*args, **(kwargs or {}))
        if func is nn.functional.scaled_dot_product_attention:
            return self._attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or not p:
            return x
        mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        cost = Cost(1, bytes_of(x, mask, x))
        return _fused(self.meter, torch.empty_like(x), cost, cost, x)

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        mask = None if mask is None else mask.expand(*q.shape[:-1], k.size(-2))
        products = q.numel() * k.size(-2)
        forward = Cost(1, bytes_of(q, k, v, mask, q), 0, 4 * products)
        mask_gradient = mask if mask is not None and mask.requires_grad else None
        read = bytes_of(q, k, v, mask, q, q)  # and the output's gradient
        backward = Cost(2, read + bytes_of(q, k, v, mask_gradient), 0, 10 * products)
        tensors = [q, k, v] if mask_gradient is None else [q, k, v, mask_gradient]
        return _fused(self.meter, torch.empty_like(q), forward, backward, *tensors)


def _fused(meter: Meter, result: Tensor, forward: Cost, backward: Cost, *tensors: Tensor) -> Tensor:
    """Note a kernel that computes ``result``, and the one that computes the gradients of ``tensors``."""
    output: Tensor = _Fused.apply(meter, result, forward, backward, *tensors)
    return output


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, meter: Meter, result: Tensor, forward: Cost, backward: Cost, *tensors: Tensor) -> Tensor:
        ctx.meter, ctx.cost = meter, backward
        ctx.like = [torch.empty_like(x) for x in tensors]
        meter.note(forward)
        return result.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.meter.note(ctx.cost)
        return None, None, None, None, *ctx.like


def build(name: str, sentences: int, size: str, device: str = "meta", precision: str = "fp16") -> MeasuredSystem:
    """Build a system with a batch of sentences of 25 tokens."""
    lengths = {"source_length": 25, "target_length": 25, "length_spread": 0.2}
    options: dict[str, Any] = {**SIZES[size], **lengths, "sentences": sentences, "beam": 4, "seed": 1}
    system = SYSTEMS[name]
    setting = Setting(**options, device=device, precision=precision)
    return MeasuredSystem(system.arch, system.options, setting, system.fused, recorded=system.recorded)


def measure(name: str, sentences: int, size: str = "base") -> Meter:
    """Return the meter of a training step, or of a search step of a system that searches by CUDA graphs."""
    with patch("torch.is_autocast_enabled", lambda *_: False):  # which knows no meta tensors
        return (_search_step if SYSTEMS[name].graphs else _training_step)(name, sentences, size)


class MeteredRecorder:
    """Meters each step that a training records."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def warm_up(self, compute: Callable[[], None]) -> None:
        compute()

    def record(self, compute: Compute, keep_gradients: Callable[[], None]) -> Any:
        with recording(), self.meter.running():
            loss, results = compute()
            loss.backward()
            self.meter.within(GRADIENTS, keep_gradients)()
        return SimpleNamespace(loss=loss.detach(), results=results, size=0, forward=lambda: None)

    def free_bytes(self) -> int:
        return 0


def _training_step(name: str, sentences: int, size: str) -> Meter:
    """Return the meter of a forward and a backward pass; a recorded one has the padding and gradients of recordings."""
    system, meter = build(name, sentences, size), Meter("loss")
    system.model.train()
    # PyTorch knows no autocast of meta tensors.
    with patch("ode_transformer.speed.recording.build_recorder", lambda _: MeteredRecorder(meter)):
        if SYSTEMS[name].recorded:
            for _ in range(2):  # a shape is recorded when it comes the second time
                system.loss()
        else:
            for parameter in system.model.parameters():
                parameter.grad = torch.empty_like(parameter)
            with meter.running():
                system.loss().backward()
    return meter


def _search_step(name: str, sentences: int, size: str) -> Meter:
    """Return the meter of a replayed step of beam search."""
    system, meter = build(name, sentences, size), Meter("choice of words")
    system.model.eval()
    system.prepare_to_decode()
    ensemble = Ensemble([system.model.plain()])
    source = RecordedSearches.pad(system.batch["net_input"]["src_tokens"])
    with torch.inference_mode():
        limit = system.setting.target_length - 1
        options = SearchOptions(beam=4, max_len_b=limit, min_len=limit)
        search = RecordedSearch(ensemble, source, options, beam=4, capacity=64)
        search._take_step(0)
        search.inputs.room = 32  # as at the 25th word
        with meter.running():
            search._compute()
    return meter


def numbers(cost: Cost) -> list[str]:
    """Return launches, gigabytes, 10¹² operations and estimated ms."""
    gigabytes = (cost.bytes + cost.product_bytes) / 1e9
    return [f"{cost.launches}", f"{gigabytes:.2f}", f"{cost.operations / 1e12:.4g}", f"{1000 * cost.seconds:.2f}"]


def table(meters: dict[str, Meter], by_part: bool) -> str:
    """Return a table of all systems, perhaps with the parts of each, the longest first."""
    rows = []
    for name, meter in meters.items():
        parts = sorted(meter.costs.items(), key=lambda item: -item[1].seconds) if by_part else []
        rows += [[f"**{name}**", *numbers(meter.total)], *([part, *numbers(cost)] for part, cost in parts)]
    return markdown_table(["step", "launches", "GB", "10¹² operations", "ms, estimated"], rows)


def share_of_fairseq(name: str, tokens: str, cost: Cost) -> float:
    """Return the estimated time of a training step, with its update, beside what fairseq's was measured to take."""
    results = json.loads((RESULTS / f"{MEASURED[tokens]}.json").read_text(encoding="utf-8"))["results"]
    return (cost.seconds + UPDATE_SECONDS) / median(results[TRAINED[name]]["train"])


def write_csv(path: Path) -> None:
    """Write the costs of all recorded systems at all sizes, without and with the kernels that no GPU has run yet."""
    lines = ["system,kernels,tokens,launches,gigabytes,teraoperations,ms,of_fairseq"]
    for name in (*TRAINED, *SEARCHED):
        is_trained = name in TRAINED
        for tried in ("", UNTRIED[is_trained]):
            for tokens in SENTENCES if is_trained else ("4096",):
                with patch.dict(os.environ, {kernels.SETTING: tried}):
                    cost = measure(name, SENTENCES[tokens]).total
                share = f"{share_of_fairseq(name, tokens, cost):.2f}" if is_trained else ""
                lines.append(",".join([name, tried, tokens, *numbers(cost), share]))
    write_text(path, "\n".join(lines) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of all systems, or write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, system in SYSTEMS.items() if not system.export and not system.int8]
    parser.add_argument("systems", nargs="*", metavar="NAME", help=f"default: those of the file; of {', '.join(names)}")
    parser.add_argument("--sentences", type=positive_int, default=SENTENCES["4096"], metavar="N", help="of 25 tokens")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--parts", action="store_true", help="each part of a step on a line of its own")
    parser.add_argument("--csv", type=Path, metavar="FILE")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.systems if name not in names]:
        parser.error(f"no system {', '.join(unknown)}: {', '.join(names)}")
    if args.csv is not None:
        write_csv(args.csv)
    else:
        meters = {name: measure(name, args.sentences, args.size) for name in args.systems or (*TRAINED, *SEARCHED)}
        print(table(meters, args.parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
