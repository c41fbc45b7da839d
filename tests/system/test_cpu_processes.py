"""Two processes of the CPU, also of two machines: they train one model together, or are refused."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from commands_for_tests import COMMANDS, ENVIRONMENT, TIMEOUT, Text, parameters, training
from ended_processes import wait_for_end
from programs_here import start_programs_here
from recipes_for_tests import Runner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A recipe of four batches an update, trained by one process in the folder ``one``."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        start_programs_here(monkeypatch)
        run = Runner("multi30k_en_de", tmp_path_factory.mktemp("processes"), monkeypatch)
        run.change("train", max_update=6, log_samples=0, warmup_updates=500, max_tokens=256)
        run.change("train", dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
        run.path.write_text(run.path.read_text().replace("tokens_per_update: 16384", "tokens_per_update: 1024"))
        assert run("prepare") == run("train") == 0
        move_training(run, "one")
        yield run


def move_training(run: Runner, name: str) -> str:
    """Move the folder of the training and return its log."""
    (run.data / "ode_transformer_rk2_tiny").rename(run.folder / name)
    return (run.folder / name / "train.log").read_text(encoding="utf-8")


def check_parameters(run: Runner, name: str) -> None:
    """Compare parameters with those of one process; each update sums the same gradients in another order."""
    one, several = (parameters(run.folder / place / "checkpoints" / "checkpoint_last.pt") for place in ("one", name))
    for parameter, value in one.items():
        torch.testing.assert_close(several[parameter], value, rtol=1e-3, atol=1e-5)


def train_command(run: Runner, *words: object) -> list[str]:
    own = ["train", run.path, "--output", run.output, "--gpus", 0]
    return list(map(str, [COMMANDS / "ode-transformer", *own, *words]))


def kill_amid_training(command: list[str], checkpoints: Path) -> None:
    """Start a training, kill the command after the first epoch, and wait until torchrun has ended its processes."""
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    while process.poll() is None and not list(checkpoints.glob("checkpoint[0-9]*.pt")):
        time.sleep(0.01)
    (torchrun,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_for_end(int(torchrun))


def test_two_processes_train_as_one_does_also_after_a_kill(run: Runner) -> None:
    checkpoints = run.data / "ode_transformer_rk2_tiny" / "checkpoints"
    kill_amid_training(train_command(run, "--processes", 2), checkpoints)
    assert run("train", "--processes", 2) == 0
    log = move_training(run, "two")
    assert "'distributed_world_size': 2" in log
    assert "'update_freq': [2]" in log
    assert "Loaded checkpoint" in log
    check_parameters(run, "two")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and iproute2")
def test_two_machines_train_as_one_process_does(run: Runner) -> None:
    """Machines are network namespaces with a cable between them; each trains with one process."""
    names = [f"ode{os.getpid()}-{rank}" for rank in (0, 1)]
    cable = "link add v0 netns {} type veth peer name v1 netns {}".format(*names)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for words in (*(f"netns add {name}" for name in names), cable):
            subprocess.run(["ip", *words.split()], check=True)
        for rank, name in enumerate(names):
            for words in (f"addr add 10.9.0.{rank + 1}/24 dev v{rank}", f"link set v{rank} up", "link set lo up"):
                subprocess.run(["ip", "-n", name, *words.split()], check=True)
            group = ["--processes", 1, "--nodes", 2, "--node-rank", rank, "--master", "10.9.0.1:29500"]
            command = ["ip", "netns", "exec", name, *train_command(run, *group)]
            environment = ENVIRONMENT | {"GLOO_SOCKET_IFNAME": f"v{rank}"}
            processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        assert [process.wait(300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)
    assert "'distributed_world_size': 2" in move_training(run, "machines")
    check_parameters(run, "machines")


def test_processes_that_know_nothing_of_each_other_are_refused(text: Text, tmp_path: Path) -> None:
    torchrun = ["torchrun", "--standalone", "--nproc-per-node=2", "--no-python", COMMANDS / "fairseq-train"]
    words = [COMMANDS / torchrun[0], *torchrun[1:], *training(text, tmp_path / "run", "ode_transformer_rk2_tiny", 2)]
    done = subprocess.run(
        list(map(str, words)), env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=TIMEOUT
    )
    assert done.returncode != 0
    assert "torchrun has started 2 processes" in done.stderr
    assert not list((tmp_path / "run").glob("*.pt"))
