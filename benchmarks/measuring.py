"""Measurements of one system for ``speed.py``: a training step, decoding, memory.

Batches, criterion, optimizer and beam search are those of fairseq's commands.
"""

from __future__ import annotations

import tempfile
import time
import weakref
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.data.language_pair_dataset import collate
from fairseq.dataclass.configs import FairseqConfig
from fairseq.optim import FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer, build_optimizer
from fairseq.optim.adam import FairseqAdamConfig
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import move_to_cuda
from omegaconf import OmegaConf
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.decoding.operations import count_operations
from ode_transformer.decoding.recorded_search import RecordedSearches
from ode_transformer.decoding.trained_model import TrainedModel
from ode_transformer.models.adam import FusedAdamConfig
from ode_transformer.models.criteria import LabelSmoothedCrossEntropyCriterion as FusedCriterion
from ode_transformer.models.model_from_options import build_from_options, numbered_dictionary
from ode_transformer.nn import BeamSearch, SearchOptions

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Setting:
    """Sizes, batch and machine, the same for all systems of a run."""

    dim: int
    ffn: int
    heads: int
    decoder_layers: int
    vocabulary: int
    sentences: int
    source_length: int
    target_length: int
    length_spread: float
    beam: int
    device: str
    precision: str
    seed: int


def make_batch(setting: Setting, dictionary: Dictionary) -> dict[str, Any]:
    """Return random sentences as fairseq's translation task collates them; every call returns the same batch.

    Lengths with the end symbol are uniform in mean · (1 ± spread), so that batches have padding as real ones do.
    """
    generator = torch.Generator().manual_seed(setting.seed)

    def sentence(mean: int) -> Tensor:
        spread = round(mean * setting.length_spread)
        length = int(torch.randint(mean - spread, mean + spread + 1, (), generator=generator))
        tokens = torch.randint(dictionary.nspecial, len(dictionary), (max(length, 2) - 1,), generator=generator)
        return torch.cat([tokens, torch.tensor([dictionary.eos()])])

    pairs = [
        {"id": number, "source": sentence(setting.source_length), "target": sentence(setting.target_length)}
        for number in range(setting.sentences)
    ]
    batch = collate(pairs, dictionary.pad(), dictionary.eos())
    if setting.device == "meta":
        return tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, batch)
    return move_to_cuda(batch) if setting.device == "cuda" else batch


class LiveTensors(TorchDispatchMode):
    """Count of the bytes that operators return while the mode is active, for as long as each storage is alive.

    Views and results written in place do not count, nor do tensors that existed before, such as parameters. Hooks on
    saved tensors would miss activation checkpointing, which installs its own hooks and keeps a step's input without
    saving it. Scratch memory inside an operator does not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known_storages = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known_storages:
                known_storages.add(storage.data_ptr())  # an operator may return two views of one new storage
                self._count(storage.nbytes())
                weakref.finalize(storage, self._count, -storage.nbytes())
        return result

    def _count(self, change: int) -> None:
        self.bytes += change
        self.peak = max(self.peak, self.bytes)


# Views, allocations and reads of a number; and of the three operators of dropout on a CPU, two.
_NOT_LAUNCHED = {
    *("view", "_unsafe_view", "t", "transpose", "expand", "slice", "unsqueeze", "squeeze", "detach", "select", "split"),
    *("split_with_sizes", "unbind", "permute", "alias", "as_strided", "empty", "empty_like", "new_empty", "lift_fresh"),
    *("_local_scalar_dense", "bernoulli_", "div_"),
}


class Launches(TorchDispatchMode):
    """Count of the operators on a CPU that a GPU would have to be given."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.number += func._schema.name.split("::")[1] not in _NOT_LAUNCHED
        return func(*args, **(kwargs or {}))


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Leave linear maps and dropout to PyTorch's own operators."""
    with torch.backends.mkldnn.flags(enabled=False), patch("ode_transformer.nn.dropout.dropout", F.dropout):
        yield


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def memory_of(forward: Callable[[], Tensor], device: str) -> tuple[int, int]:
    """Return the bytes that the forward pass leaves for the backward pass, and the peak of both passes.

    Memory that is already allocated does not count. That should include the gradients of the parameters, to which the
    backward pass then adds in place.
    """
    if device == "cpu":
        with LiveTensors() as live:
            loss = forward()
            held = live.bytes
            loss.backward()
            return held, live.peak
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    allocated = torch.cuda.memory_allocated()
    loss = forward()
    held = torch.cuda.memory_allocated() - allocated
    loss.backward()
    return held, torch.cuda.max_memory_allocated() - allocated


class MeasuredSystem:
    """A model with its batch, criterion, optimizer and beam search.

    :param arch: a registered architecture
    :param options: options of fairseq; they replace the common sizes
    :param fused: train with ``fused_adam`` and ``fused_label_smoothed_cross_entropy``
    :param graphs: decode by CUDA graphs
    :param recorded: train by CUDA graphs, from the second step on
    """

    def __init__(
        self,
        arch: str,
        options: dict[str, Any],
        setting: Setting,
        fused: bool = False,
        graphs: bool = False,
        recorded: bool = False,
    ) -> None:
        torch.manual_seed(setting.seed)
        self.arch, self.fused, self.graphs = arch, fused, graphs
        sizes = {"decoder_layers": setting.decoder_layers, "share_all_embeddings": True}
        for stack in ("encoder", "decoder"):
            sizes |= {f"{stack}_embed_dim": setting.dim, f"{stack}_ffn_embed_dim": setting.ffn}
            sizes |= {f"{stack}_attention_heads": setting.heads}
        # The same for all: the architectures' defaults differ, and dropout takes time.
        rates = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
        args = Namespace(arch=arch, **(sizes | rates | options))
        with torch.device(setting.device):  # where the first weights are drawn faster
            model = build_from_options(args, setting.vocabulary)
        dictionary = model.decoder.dictionary
        self.model = model.to(device=setting.device, dtype=DTYPES[setting.precision])
        self.setting = setting
        self.batch = make_batch(setting, dictionary)
        # A recorder chooses the lengths to which it pads by those of the training data.
        lengths = np.array([self.batch["net_input"]["src_tokens"].size(1), self.batch["target"].size(1)])
        datasets = {"train": SimpleNamespace(sizes=lengths)}
        self.task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary, datasets=datasets)
        criterion = FusedCriterion if fused else LabelSmoothedCrossEntropyCriterion
        self.criterion = criterion(self.task, sentence_avg=False, label_smoothing=0.1)
        self.recorded = self.criterion.cuda_graphs = recorded

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @cached_property
    def optimizer(self) -> FairseqOptimizer:
        """Adam; in half precision it updates a float32 copy of the parameters, as with --fp16 or --bf16."""
        cfg = OmegaConf.structured(FairseqConfig)
        config, name = (FusedAdamConfig, "fused_adam") if self.fused else (FairseqAdamConfig, "adam")
        cfg.optimizer = config(_name=name, adam_betas="(0.9, 0.98)")
        cfg.optimization.lr = [1e-4]
        parameters = list(self.model.parameters())
        if self.setting.precision == "fp32":
            return build_optimizer(cfg.optimizer, parameters)
        cfg.common.bf16 = self.setting.precision == "bf16"
        cfg.common.fp16_init_scale = 1  # no overflow, after which fairseq would skip an update
        wrapper = MemoryEfficientFP16Optimizer if self.fused else FP16Optimizer  # as recipes choose it
        return wrapper.build_optimizer(cfg, parameters)

    def loss(self) -> Tensor:
        """Return the loss summed over the batch, in float32."""
        return self.criterion(self.model, self.batch)[0]

    def train_step(self) -> dict[str, float]:
        """Take one training step as fairseq's trainer does; return the seconds of the step and of its update.

        Those whose names end in ``_cpu`` are CPU seconds of the process.
        """
        self.model.train()
        begin = self.clocks()
        # fairseq divides the gradients by the tokens, here it is the loss: with a loss scale of 1 gradients of a sum
        # over thousands of tokens exceed what fp16 can hold. The pass over the gradients stays.
        self.optimizer.backward(self.loss() / self.batch["ntokens"])
        middle = self.clocks()
        self.optimizer.multiply_grads(1.0)
        self.optimizer.clip_grad_norm(0.0)  # only measures the norm, which fairseq does in every step
        self.optimizer.step()
        self.optimizer.zero_grad()  # last, so that no gradients stay while other systems take their turn
        end = self.clocks()
        return seconds_between("train", begin, end) | seconds_between("update", middle, end)

    def operations(self) -> int:
        """Return the floating-point operations of the matrix products in forward and backward pass, without padding."""
        self.model.train()
        self.criterion.cuda_graphs = False
        count = count_operations(lambda: self.loss().backward())
        self.criterion.cuda_graphs = self.recorded
        self.model.zero_grad(set_to_none=True)
        return count

    def kernels(self) -> int:
        """Return how many kernels, copies and fills a GPU is given in one forward and backward pass.

        On a CPU it is the number of operators that would be given to it.
        """
        self.model.train()
        if self.setting.device == "cpu":
            with as_on_a_gpu(), Launches() as launches:
                self.loss().backward()
            self.model.zero_grad(set_to_none=True)
            return launches.number
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            self.loss().backward()
            torch.cuda.synchronize()
        self.model.zero_grad(set_to_none=True)
        return sum(event.count for event in profiler.key_averages() if event.device_type.name == "CUDA")

    def memory(self) -> tuple[int, int]:
        """Return the bytes that the forward pass leaves for the backward pass, and the peak of both passes."""
        self.model.train()
        self.loss().backward()  # allocates gradients and everything that modules cache in their first call
        return memory_of(self.loss, self.setting.device)

    def prepare_to_decode(self) -> None:
        """Prepare the model as fairseq-generate does; it cannot be trained afterwards."""
        self.__dict__.pop("optimizer", None)
        self.model.zero_grad(set_to_none=True)
        self.model.make_generation_fast_(need_attn=False)

    @cached_property
    def search(self) -> Callable[[], Any]:
        """Beam search, fairseq's for its model, whose hypotheses all have ``target_length`` tokens with the end."""
        length, beam = self.setting.target_length - 1, self.setting.beam
        if self.arch == "transformer":
            dictionary = self.task.target_dictionary
            lengths: dict[str, Any] = {"min_len": length, "max_len_a": 0, "max_len_b": length}
            generator = SequenceGenerator([self.model], dictionary, beam_size=beam, **lengths)
            return partial(generator.generate, [self.model], self.batch)
        options = SearchOptions(beam, max_len_b=length, min_len=length)
        search = BeamSearch([self.model.plain()], options, RecordedSearches() if self.graphs else None)
        return partial(search.search, self.batch["net_input"]["src_tokens"])

    def decode(self) -> dict[str, float]:
        """Translate the sources of the batch; return the seconds, and the CPU seconds of the process."""
        begin = self.clocks()
        hypotheses = self.search()
        end = self.clocks()
        lengths = {len(hypothesis["tokens"]) for sentence in hypotheses for hypothesis in sentence}
        assert lengths == {self.setting.target_length}
        return seconds_between("decode", begin, end)

    def clocks(self) -> tuple[float, float]:
        """Return wall time and CPU time after everything that was begun has ended."""
        if self.setting.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()


def seconds_between(name: str, begin: tuple[float, float], end: tuple[float, float]) -> dict[str, float]:
    """Return the wall time between two readings of the clocks as ``name``, the CPU time as ``name_cpu``."""
    return {name: end[0] - begin[0], f"{name}_cpu": end[1] - begin[1]}


class CTranslate2System(MeasuredSystem):
    """A system that CTranslate2 decodes; it needs the extra export.

    :param quantization: numbers of its weights, as for ``ode-transformer export --quantization``
    """

    def __init__(self, arch: str, options: dict[str, Any], setting: Setting, quantization: str) -> None:
        super().__init__(arch, options, setting)
        self.quantization = quantization

    def prepare_to_decode(self) -> None:
        """Export the model to a temporary folder and load it."""
        import ctranslate2

        from ode_transformer.export import ctranslate2_folder

        super().prepare_to_decode()
        dictionaries = self.task.source_dictionary, self.task.target_dictionary
        here = Path("benchmark")
        model = TrainedModel(here, here, self.model.plain(), {"arch": "benchmark"}, {}, *dictionaries, ("en", "de"))
        assert ctranslate2_folder.refusal(model) is None
        threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder:
            ctranslate2_folder.write(model, Path(folder), self.quantization)
            self.translator = ctranslate2.Translator(folder, device=self.setting.device, intra_threads=threads)
        words, pad = self.task.source_dictionary, self.task.source_dictionary.pad()
        sources = [row[row != pad].tolist()[:-1] for row in self.batch["net_input"]["src_tokens"]]
        self.sources = [[words[number] for number in source] for source in sources]

    def decode(self) -> dict[str, float]:
        """Translate the sources of the batch; return the seconds."""
        length = self.setting.target_length
        lengths = {"min_decoding_length": length, "max_decoding_length": length}
        begin = self.clocks()
        results = self.translator.translate_batch(self.sources, beam_size=self.setting.beam, **lengths)
        end = self.clocks()
        assert {len(result.hypotheses[0]) for result in results} == {length}
        return seconds_between("decode", begin, end)


class MarianSystem(MeasuredSystem):
    """Marian of Hugging Face's transformers, with PyTorch's autocast and fused AdamW; it needs the extra huggingface.

    :param options: options of its configuration
    """

    def __init__(self, options: dict[str, Any], setting: Setting) -> None:
        from transformers import MarianConfig, MarianMTModel

        torch.manual_seed(setting.seed)
        self.setting, self.recorded, self.criterion = setting, False, SimpleNamespace()
        dictionary = numbered_dictionary(setting.vocabulary)
        self.pad, eos = dictionary.pad(), dictionary.eos()
        options = options | {"vocab_size": setting.vocabulary, "d_model": setting.dim, "dropout": 0.1}
        options |= {"attention_dropout": 0.1, "activation_dropout": 0.1, "decoder_layers": setting.decoder_layers}
        for stack in ("encoder", "decoder"):
            options |= {f"{stack}_ffn_dim": setting.ffn, f"{stack}_attention_heads": setting.heads}
        symbols = {"pad_token_id": self.pad, "eos_token_id": eos, "decoder_start_token_id": eos}
        model: Any = MarianMTModel(MarianConfig(**options, **symbols, forced_eos_token_id=None))
        self.model = model.to(setting.device)
        self.batch = make_batch(setting, dictionary)
        self.adamw = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.scaler = torch.amp.GradScaler(setting.device, enabled=setting.precision == "fp16")

    def loss(self) -> Tensor:
        """Return the loss summed over the batch, in float32."""
        inputs, target = self.batch["net_input"], self.batch["target"]
        source, half = inputs["src_tokens"], self.setting.precision != "fp32"
        with torch.autocast(self.setting.device, DTYPES[self.setting.precision], enabled=half):
            output = self.model(source, source.ne(self.pad).long(), inputs["prev_output_tokens"])
        rows = output.logits.float().flatten(0, 1)
        return F.cross_entropy(rows, target.flatten(), ignore_index=self.pad, label_smoothing=0.1, reduction="sum")

    def train_step(self) -> dict[str, float]:
        """Take one training step; return the seconds of the step and of its update."""
        self.model.train()
        begin = self.clocks()
        self.scaler.scale(self.loss() / self.batch["ntokens"]).backward()
        middle = self.clocks()
        self.scaler.step(self.adamw)
        self.scaler.update()
        self.adamw.zero_grad()
        end = self.clocks()
        return seconds_between("train", begin, end) | seconds_between("update", middle, end)

    def prepare_to_decode(self) -> None:
        """Convert the model to the precision of decoding."""
        self.model.eval().to(DTYPES[self.setting.precision])

    def decode(self) -> dict[str, float]:
        """Translate the sources of the batch; return the seconds."""
        source, length = self.batch["net_input"]["src_tokens"], self.setting.target_length
        lengths = {"min_new_tokens": length, "max_new_tokens": length}
        begin = self.clocks()
        mask = source.ne(self.pad).long()
        output = self.model.generate(
            source, attention_mask=mask, num_beams=self.setting.beam, do_sample=False, **lengths
        )
        end = self.clocks()
        assert output.size(1) == 1 + length
        return seconds_between("decode", begin, end)
