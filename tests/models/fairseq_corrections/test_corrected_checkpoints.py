"""Faults of the pinned fairseq's checkpoints, each shown in its own function and gone with the correction."""

import pickle
import shutil
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from changed_checkpoints import rewrite
from checkpoint_for_tests import make_model
from commands_for_tests import Text, run, training
from doors import open_model
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig, EMAConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler
from fairseq.trainer import Trainer
from models_for_tests import small_model
from omegaconf import OmegaConf

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.support.errors import OptionError, UserError


def trainer_of(model: Any = None, scaler: Any = None, processes: int = 1) -> Any:
    """Return what fairseq's trainer reads of itself to write and to read a checkpoint."""
    cfg = Mock(checkpoint=CheckpointConfig(no_save_optimizer_state=True), ema=EMAConfig(), model=Namespace())
    cfg.distributed_training.zero_sharding = "none"
    trainer = Mock(cfg=cfg, model=model or Mock(spec=["state_dict", "set_num_updates", "load_state_dict"]))
    trainer.configure_mock(tpu=False, is_fsdp=False, data_parallel_world_size=processes, data_parallel_rank=0)
    trainer.configure_mock(criterion=torch.nn.Module(), _optim_history=[], device=torch.device("cpu"))
    trainer.get_criterion.return_value = trainer.criterion
    trainer.optimizer.scaler, trainer.lr_scheduler = scaler, Namespace(state_dict=dict)
    return trainer


def test_each_process_reads_a_checkpoint(
    pinned: Callable[[Any, str], None], untrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process sends holds options, which PyTorch does not read."""
    sent: list[torch.Tensor] = []

    def load(rank: int) -> Any:
        def broadcast(tensor: torch.Tensor, src: int, group: Any) -> None:
            if rank == src:
                sent.append(tensor.clone())
            else:
                tensor.copy_(sent.pop(0))

        monkeypatch.setattr(distributed_utils, "get_rank", lambda group: rank)
        monkeypatch.setattr(distributed_utils, "broadcast", broadcast)
        trainer = trainer_of(processes=2)
        trainer.data_parallel_rank = rank
        Trainer.load_checkpoint(trainer, str(untrained))
        return trainer.model.load_state_dict.call_args.args[0]

    assert load(0).keys() == load(1).keys()
    assert not sent
    for _ in range(2):  # each of the two corrections
        pinned(Trainer, "load_checkpoint")
    load(0)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load(1)


def test_another_dictionary_is_named(pinned: Callable[[Any, str], None], untrained: Path) -> None:
    trainer = trainer_of(small_model(arch="ode_transformer_rk2"))
    with pytest.raises(OptionError, match="model.pt: its dictionary has .* words, that of the data .*: binarise"):
        Trainer.load_checkpoint(trainer, str(untrained))
    for _ in range(2):
        pinned(Trainer, "load_checkpoint")
    with pytest.raises(Exception, match="Cannot load model parameters"):
        Trainer.load_checkpoint(trainer, str(untrained))


def test_options_of_a_stranger_are_not_evaluated(pinned: Callable[[Any, str], None], tmp_path: Path) -> None:
    folder, trace = make_model(tmp_path).parent, tmp_path / "trace"

    def claim_code(state: dict[str, Any]) -> None:
        state["cfg"]["model"].adaptive_softmax_cutoff = f"[100] if open({str(trace)!r}, 'w') else 0"

    rewrite(folder, claim_code)
    with pytest.raises(UserError, match="refused: option adaptive_softmax_cutoff is"):
        open_model("fairseq", folder)
    assert not trace.exists()
    pinned(checkpoint_utils, "load_checkpoint_to_cpu")
    with pytest.raises(Exception, match="no longer supported"):
        open_model("fairseq", folder)
    assert trace.exists()


def test_a_model_larger_than_its_file_is_not_built(
    pinned: Callable[[Any, str], None], untrained: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(untrained.parent, tmp_path / "model"))
    rewrite(folder, lambda state: vars(state["cfg"]["model"]).update(encoder_ffn_embed_dim=2**16))
    with pytest.raises(UserError, match="refused: its options describe far more parameters than it has"):
        open_model("fairseq", folder)
    pinned(checkpoint_utils, "load_model_ensemble_and_task")
    with pytest.raises(RuntimeError, match="size mismatch"):  # after all were drawn
        open_model("fairseq", folder)


def test_a_checkpoint_of_another_architecture_is_refused_in_one_line(learned: Path, text: Text, tmp_path: Path) -> None:
    shutil.copy(learned, tmp_path / "checkpoint_last.pt")
    for arch, message in (
        ("macaron_tiny", "a model of --arch ode_transformer_rk2_tiny, not macaron_tiny"),
        ("ode_transformer_rk2_tiny", "a model of other options"),
    ):
        done = run("train", *training(text, tmp_path, arch, 50, "--encoder-layers", 3))
        assert done.returncode != 0
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert line.startswith(f"error: {tmp_path}/checkpoint_last.pt: {message} ("), done.stderr
        assert "Traceback" not in done.stderr


def test_an_update_at_the_end_of_an_epoch_is_saved(pinned: Callable[[Any, str], None], tmp_path: Path) -> None:
    iterator = Namespace(epoch=1, end_of_epoch=lambda: True, state_dict=dict)
    trainer = Mock(data_parallel_rank=0, checkpoint_suffix="", task=Namespace())
    trainer.get_num_updates.return_value = 4
    trainer.save_checkpoint = lambda path, state: Path(path).write_text("")

    def saved(folder: str) -> list[str]:
        cfg = CheckpointConfig(save_dir=str(tmp_path / folder), save_interval_updates=2)
        checkpoint_utils.save_checkpoint(OmegaConf.structured(cfg), trainer, iterator, None)
        return sorted(path.name for path in (tmp_path / folder).iterdir())

    assert saved("ours") == ["checkpoint1.pt", "checkpoint_1_4.pt", "checkpoint_last.pt"]
    pinned(checkpoint_utils, "save_checkpoint")
    assert saved("fairseq") == ["checkpoint1.pt", "checkpoint_last.pt"]


def test_the_loss_scale_grows_as_if_training_had_not_stopped(
    pinned: Callable[[Any, str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint_last.pt"
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: torch.load(path))

    def scales(*stops: int) -> list[float]:
        path.unlink(missing_ok=True)
        found = [1.0]
        for stop in (*stops, 9):
            scaler = DynamicLossScaler(found[-1], scale_window=3)  # fairseq saves the scale itself
            trainer = trainer_of(scaler=scaler)
            trainer.model.state_dict.return_value = {}
            Trainer.load_checkpoint(trainer, str(path))
            while len(found) < stop:
                scaler.update()
                found.append(scaler.loss_scale)
            trainer.configure_mock(cfg=Namespace(checkpoint=trainer.cfg.checkpoint, ema=trainer.cfg.ema))
            trainer.get_num_updates.return_value, trainer.task.state_dict.return_value = 0, {}
            trainer.cumulative_training_time.return_value = 0
            state = Trainer.state_dict(trainer)
            state["extra_state"]["train_iterator"] = {"epoch": 1}
            torch.save(state | {"cfg": None}, path)
        return found

    assert scales(5, 8) == scales() == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    pinned(Trainer, "load_checkpoint")
    assert scales(5, 8) != scales()
    monkeypatch.undo()
    assert "counters" in Trainer.state_dict(trainer_of())["extra_state"]
    pinned(Trainer, "state_dict")
    assert "counters" not in Trainer.state_dict(trainer_of())["extra_state"]


def test_a_killed_copy_leaves_the_checkpoint_before(
    pinned: Callable[[Any, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_half(source: str, target: str) -> None:
        Path(target).write_text(Path(source).read_text()[:1])
        raise KeyboardInterrupt

    epoch, last = str(tmp_path / "checkpoint2.pt"), str(tmp_path / "checkpoint_last.pt")
    Path(epoch).write_text("new")
    assert PathManager.copy(epoch, last, overwrite=True)
    assert Path(last).read_text() == "new"
    Path(last).write_text("old")
    monkeypatch.setattr(shutil, "copyfile", copy_half)
    with pytest.raises(KeyboardInterrupt):
        PathManager.copy(epoch, last, overwrite=True)
    assert Path(last).read_text() == "old"
    pinned(PathManager, "copy")
    with pytest.raises(KeyboardInterrupt):
        PathManager.copy(epoch, last, overwrite=True)
    assert Path(last).read_text() == "n"


def test_numbers_of_metrics_are_written_as_plain_ones(tmp_path: Path) -> None:
    """Best by Pearson's correlation, and the n-grams of --eval-bleu."""
    state = {"model": {}, "extra_state": {"best": np.float64(63.5), "metrics": [("_bleu_counts", np.array([3, 1]))]}}
    save = checkpoint_utils.torch_persistent_save
    for function, name in ((save, "ours.pt"), (save.__wrapped__, "fairseq.pt")):
        function(state, str(tmp_path / name))
        read = load_checkpoint(tmp_path / name)["extra_state"]
        assert read == {"best": 63.5, "metrics": [("_bleu_counts", [3, 1])]}
        assert type(read["best"]) is float
    torch.load(tmp_path / "ours.pt", weights_only=True)
    assert b"numpy" not in (tmp_path / "ours.pt").read_bytes()
    assert b"numpy" in (tmp_path / "fairseq.pt").read_bytes()
    save.__wrapped__({"model": {}, "extra_state": np.array([None])}, str(tmp_path / "objects.pt"))
    with pytest.raises(UserError, match="refused: it holds O8 of NumPy"):
        load_checkpoint(tmp_path / "objects.pt")
