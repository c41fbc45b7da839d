"""Faults of the pinned fairseq's commands, each shown in its own function and gone with the correction."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands_for_tests import COMMANDS, ENVIRONMENT, USER_DIR, Text, run
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.dataclass import utils as dataclass_utils
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.options import get_training_parser, parse_args_and_arch
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf.errors import InterpolationKeyError
from torch.distributed import destroy_process_group, is_initialized

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.models.fairseq_corrections import commands
from ode_transformer.support.errors import UserError


def test_a_folder_may_have_a_colon(pinned: Callable[[Any, str], None], tmp_path: Path) -> None:
    folder, several = tmp_path / "10:30", f"{tmp_path}/one:{tmp_path}/two"
    folder.mkdir()
    task = TranslationTask(TranslationConfig(data=str(folder)), Dictionary(), Dictionary())
    assert utils.split_paths(str(folder)) == [str(folder)]
    assert not task.has_sharded_data("train")
    assert len(utils.split_paths(several)) == 2
    pinned(FairseqTask, "has_sharded_data")
    assert task.has_sharded_data("train")
    pinned(utils, "split_paths")
    assert len(utils.split_paths(str(folder))) == 2


@pytest.mark.parametrize("folder", ["a,b: c", "a'b", "${x}", "a${x.y}${z}"])
def test_a_folder_may_have_any_name(pinned: Callable[[Any, str], None], folder: str) -> None:
    words = [folder, "--arch", "ode_transformer_rk2", "--save-dir", folder, "--eval-bleu-args", '{"beam": 4}']
    args = parse_args_and_arch(get_training_parser(), words)

    def folders() -> list[str]:
        groups = dataclass_utils.convert_namespace_to_omegaconf(args)
        assert json.loads(groups.task.eval_bleu_args) == {"beam": 4}
        return [groups.task.data, groups.checkpoint.save_dir, groups.model.save_dir]

    assert folders() == [folder] * 3
    pinned(dataclass_utils, "override_module_args")
    if "$" not in folder:
        assert folders() == [folder] * 3
    else:
        with pytest.raises(InterpolationKeyError):
            folders()


def test_a_refusal_ends_in_one_line(untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.pt"
    path.write_text("no checkpoint")
    words = (untrained.parent, "--user-dir", USER_DIR, "--path", path, "--source-lang", "en", "--target-lang", "de")
    command = [str(COMMANDS / "fairseq-generate"), "--cpu", *map(str, words)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"fairseq-generate: error: {path}: broken or truncated")
    assert "Traceback" not in done.stderr

    def printed(hook: Callable[..., object]) -> str:
        try:
            load_checkpoint(path)
        except UserError as error:
            hook(type(error), error, error.__traceback__)
        return capsys.readouterr().err

    assert len(printed(commands.print_error).splitlines()) == 1
    assert printed(sys.__excepthook__).startswith("Traceback")


def test_validation_takes_the_task_of_the_checkpoint(learned: Path, text: Text) -> None:
    words = (text.data, "--user-dir", USER_DIR, "--path", learned, "--batch-size", 8, "--cpu", "--num-workers", 0)
    done = run("validate", *words, "--log-format", "json", stderr=subprocess.STDOUT)
    assert '"valid_loss"' in done.stdout, done.stdout


def test_validation_needs_no_task(pinned: Callable[[Any, str], None]) -> None:
    words = ["data", "--path", "model.pt"]
    assert options.parse_args_and_arch(options.get_validation_parser(), words).task == "translation"
    pinned(options, "parse_args_and_arch")
    with pytest.raises(KeyError):
        options.parse_args_and_arch(options.get_validation_parser(), words)


def test_bfloat16_needs_no_tpu(pinned: Callable[[Any, str], None]) -> None:
    words = ["data", "--arch", "transformer", "--memory-efficient-bf16"]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert (args.bf16, args.tpu) == (True, False)
    pinned(options, "parse_args_and_arch")
    assert options.parse_args_and_arch(options.get_training_parser(), words).tpu


def test_the_group_of_processes_is_left(
    pinned: Callable[[Any, str], None], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A thread of gloo's that still freed tensors when Python ended aborted a training that was done, now and then."""
    caplog.set_level("INFO")  # as fairseq does, which does not set it back
    was_member = []

    def train(number: str) -> None:
        config = FairseqConfig()
        group = config.distributed_training
        group.distributed_init_method, group.distributed_backend = f"file://{tmp_path / number}", "gloo"
        group.distributed_rank, group.distributed_world_size = 0, 1
        distributed_utils.distributed_main(0, lambda _: was_member.append(is_initialized()), config, {})

    train("1")
    assert was_member == [True]
    assert not is_initialized()
    pinned(distributed_utils, "distributed_main")
    train("2")
    assert is_initialized()
    destroy_process_group()
