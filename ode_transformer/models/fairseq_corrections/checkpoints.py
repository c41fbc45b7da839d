"""Corrections of how fairseq writes and reads checkpoints: its own and those of a stranger."""

import re
import sys
from types import SimpleNamespace
from typing import Any

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from ode_transformer.checkpoints.plain_numbers import plain_numbers
from ode_transformer.checkpoints.reading import load_checkpoint, option_group, saved_options
from ode_transformer.checkpoints.stored_sizes import LIMIT, limited_parameters
from ode_transformer.models.admission import admitted_state
from ode_transformer.models.fairseq_corrections.replacing import Function, replace
from ode_transformer.support.errors import OptionError


@replace(checkpoint_utils, "save_checkpoint")
def _save_updates_at_the_end_of_an_epoch(
    original: Function, cfg: Any, trainer: Trainer, iterator: Any, loss: float | None
) -> str | None:
    """Write the checkpoint of ``--save-interval-updates`` also where its update is the last of an epoch."""
    saved = original(cfg, trainer, iterator, loss)
    if (
        iterator.end_of_epoch()
        and cfg.save_interval_updates
        and trainer.get_num_updates() % cfg.save_interval_updates == 0
    ):
        only = {"no_last_checkpoints": True, "keep_best_checkpoints": 0, "keep_last_epochs": 0}
        within = SimpleNamespace(epoch=iterator.epoch, end_of_epoch=lambda: False, state_dict=iterator.state_dict)
        original(OmegaConf.merge(cfg, only), trainer, within, loss)
    return saved


@replace(Trainer, "load_checkpoint")
def _read_checkpoint_in_each_process(
    original: Function, trainer: Trainer, path: str, *arguments: Any, **keywords: Any
) -> Any:
    """Let ``--load-checkpoint-on-all-dp-ranks`` be the rule: PyTorch >= 2.6 refuses what the first process sends.

    :raises OptionError: the parameters do not fit the model, of which fairseq writes every one
    """
    trainer.cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True
    try:
        return original(trainer, path, *arguments, **keywords)
    except Exception as error:
        reason = str(error.__context__)
        sizes = re.search(r"size mismatch for \S*embed_tokens.*?Size\(\[(\d+).*?Size\(\[(\d+)", reason)
        if sizes is not None and sizes[1] != sizes[2]:
            raise OptionError(
                f"{path}: its dictionary has {sizes[1]} words, that of the data {sizes[2]}: binarise them with its own "
                "(fairseq-preprocess --srcdict, --tgtdict)"
            ) from error
        if "Cannot load model parameters" not in str(error):
            raise
        models = saved_options(load_checkpoint(path), "model"), option_group(trainer.cfg.model)
        saved, arch = (model.get("arch") or model.get("_name") for model in models)
        found = " ".join(reason.removeprefix("Error(s) in loading state_dict for ").split())[:150]
        raise OptionError(
            f"{path}: a model of {'other options' if saved == arch else f'--arch {saved}, not {arch}'} ({found} ...); "
            "continue it with its own options, or give a new --save-dir"
        ) from error


# Counters that fairseq keeps in its process alone: of --patience, of --lr-patience and of the loss scale of --fp16.
_COUNTERS = {
    "early_stopping": ("best", "num_runs"),
    "plateau": ("num_bad_epochs",),
    "loss_scale": ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale"),
}


def _counting(trainer: Trainer) -> dict[str, Any]:
    """Return what has the counters: a function of fairseq-train, a learning rate's schedule and a loss scaler."""
    programs = (sys.modules.get(name) for name in ("__main__", "fairseq_cli.train"))  # either runs the training
    counting = {
        "early_stopping": next(
            filter(None, (getattr(program, "should_stop_early", None) for program in programs)), None
        ),
        "plateau": getattr(trainer.lr_scheduler, "lr_scheduler", None),
        "loss_scale": getattr(trainer.optimizer, "scaler", None),
    }
    return {kind: counter for kind, counter in counting.items() if counter is not None}


@replace(Trainer, "state_dict")
def _save_counters(original: Function, trainer: Trainer) -> dict[str, Any]:
    """Write into a checkpoint how long a training has not improved, which would be counted anew when it is resumed."""
    state = original(trainer)
    state["extra_state"]["counters"] = {
        kind: {name: getattr(counter, name) for name in _COUNTERS[kind] if hasattr(counter, name)}
        for kind, counter in _counting(trainer).items()
    }
    return state


@replace(Trainer, "load_checkpoint")
def _resume_counters(
    original: Function,
    trainer: Trainer,
    path: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    optimizer_overrides: dict[str, Any] | None = None,
    reset_meters: bool = False,
) -> Any:
    """Go on counting where a checkpoint's training stopped, unless something is to begin anew.

    A checkpoint of an epoch's end is written before the learning rate's schedule is told its validation loss.
    """
    state = original(trainer, path, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters=reset_meters)
    if state is not None and not (reset_optimizer or reset_lr_scheduler or reset_meters):
        counters = option_group(state.get("counters"))
        for kind, counter in _counting(trainer).items():
            for name in counters.get(kind, {}).keys() & _COUNTERS[kind]:
                setattr(counter, name, counters[kind][name])
        position = state["train_iterator"]
        if position.get("iterations_in_epoch") == 0 and state.get("val_loss") is not None:
            trainer.lr_step(position["epoch"] - 1, state["val_loss"])
    return state


@replace(checkpoint_utils, "load_checkpoint_to_cpu")
def _read_checkpoint(
    original: Function, path: str, arg_overrides: dict[str, Any] | None = None, load_on_all_ranks: bool = False
) -> dict[str, Any]:
    """Read a stranger's checkpoint as our commands do; fairseq evaluates its options as Python."""
    state = load_checkpoint(PathManager.get_local_path(path))
    if (limit := LIMIT.get()) is not None:
        limit.allow_stored(state["model"], path)
    return admitted_state(state, arg_overrides, any_of_fairseq=True)


@replace(checkpoint_utils, "load_model_ensemble_and_task")
def _build_what_is_stored(original: Function, *arguments: Any, **options: Any) -> Any:
    """Refuse a checkpoint whose options describe far more parameters than it has, as our commands do."""
    with limited_parameters():
        return original(*arguments, **options)


@replace(checkpoint_utils, "torch_persistent_save")
def _write_plain_numbers(original: Function, state: dict[str, Any], *arguments: Any, **options: Any) -> None:
    """Write NumPy's numbers in metrics, as of ``--eval-bleu``, as plain ones: PyTorch >= 2.6 refuses others (5603)."""
    plain = {name: plain_numbers(state[name]) for name in ("extra_state", "optimizer_history") if name in state}
    original(state | plain, *arguments, **options)


@replace(PathManager, "copy")
def _copy_whole(original: Function, source: str, target: str, overwrite: bool = False) -> Any:
    """Copy to another name first: a process killed on its way would leave half a ``checkpoint_last.pt``."""
    if not (overwrite and PathManager.supports_rename(target)):
        return original(source, target, overwrite)
    copied = original(source, f"{target}.tmp", overwrite)
    PathManager.rename(f"{target}.tmp", target)
    return copied
