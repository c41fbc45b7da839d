"""Faults of the pinned fairseq's updates, each shown in its own function and gone with the correction."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from batches import batch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import (
    Dictionary,
)
from fairseq.dataclass.configs import EMAConfig
from fairseq.logging import metrics
from fairseq.models.ema.ema import EMA
from fairseq.nan_detector import NanDetector
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from models_for_tests import small_model

from ode_transformer.support.errors import OptionError

SENTENCES = batch([6, 3, 1, 5])


def test_losses_that_are_no_numbers_end_in_one_line(pinned: Callable[[Any, str], None], tmp_path: Path) -> None:
    cfg = Namespace(checkpoint=Namespace(save_dir=str(tmp_path)))
    failing = Mock(side_effect=FloatingPointError("gradients are Nan/Inf"))
    trainer = Namespace(cfg=cfg, get_num_updates=lambda: 4, _set_seed=failing)
    with pytest.raises(OptionError, match="update 5: gradients are Nan/Inf; .*crash_batch.txt.*--lr"):
        Trainer.train_step(trainer, [{"id": torch.tensor([7, 3])}, {}])  # no batch is left for the second update
    assert (tmp_path / "crash_batch.txt").read_text() == "7\n3\n"
    for _ in range(2):  # the late reading of norms is around it
        pinned(Trainer, "train_step")
    with pytest.raises(FloatingPointError):
        Trainer.train_step(trainer, [{"id": torch.tensor([7, 3])}])


@pytest.fixture
def unwritten_is_nan() -> Iterator[None]:
    """Let PyTorch fill memory that is not yet written with NaN, which it may hold anyway."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("unwritten_is_nan")
def test_a_batch_is_looked_at_for_numbers(pinned: Callable[[Any, str], None], caplog: pytest.LogCaptureFixture) -> None:
    """Backward, PyTorch looks for a tensor in what each module returns, such as a dictionary of lists."""
    caplog.set_level("INFO")
    model = small_model().train()
    torch.nn.init.constant_(model.encoder.layers[0].self_attn.layer_norm.bias, torch.nan)

    def look() -> None:
        with NanDetector(model):
            model(SENTENCES, None, SENTENCES)[0].sum().backward()

    look()
    assert "NaN detected in output of encoder.layers.0" in caplog.text
    pinned(NanDetector, "__init__")
    with pytest.raises((StopIteration, TypeError)):
        look()


def test_a_matrix_of_two_names_is_averaged_once(pinned: Callable[[Any, str], None]) -> None:
    def average() -> float:
        layers = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False)] * 2)
        torch.nn.init.zeros_(layers[0].weight)
        ema = EMA(layers, EMAConfig(store_ema=True, ema_decay=0.9))
        torch.nn.init.ones_(layers[0].weight)
        ema.step(layers)
        return float(ema.model[1].weight.detach())

    def averages(fp32: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).half()
        ema = EMA(layers, EMAConfig(store_ema=True, ema_decay=0.9, ema_fp32=fp32))
        for _ in range(3):
            torch.nn.init.normal_(layers[0].weight)
            ema.step(layers)
        return [*ema.model.parameters(), *ema.fp32_params.values()]

    ours = average(), averages(False), averages(True)
    pinned(EMA, "_step_internal")
    assert ours[0] == pytest.approx(0.1)
    assert average() == pytest.approx(0.19)
    for own, fp32 in zip(ours[1:], (False, True), strict=True):
        torch.testing.assert_close(own, averages(fp32), rtol=0, atol=1e-3)


def test_bleu_is_logged_where_no_output_has_a_word(pinned: Callable[[Any, str], None]) -> None:
    task = TranslationTask(TranslationConfig(eval_bleu=True), Dictionary(), Dictionary())

    def log(words: int) -> dict[str, int]:
        counts = {f"_bleu_{name}_{order}": words for name in ("counts", "totals") for order in range(4)}
        sizes = {"loss": 1, "ntokens": 4, "sample_size": 1, "nsentences": 1}
        return sizes | counts | {"_bleu_sys_len": words, "_bleu_ref_len": 4}

    def bleu(*validations: int) -> float | None:
        with metrics.aggregate(new_root=True) as logged:
            for words in validations:
                task.reduce_metrics([log(words)], CrossEntropyCriterion(task, False))
        return logged.get_smoothed_values().get("bleu")

    assert bleu(0) == 0
    assert bleu(0, 4) == bleu(4, 0) == 36.79  # as short as its half: exp(1 - 2)
    pinned(TranslationTask, "reduce_metrics")
    assert bleu(0) is None
    assert bleu(0, 4) == 100
