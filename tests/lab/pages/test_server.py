"""The server as a program meets it: a line for each line, and clear refusals."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from checkpoint_for_tests import make_model
from commands_for_tests import COMMANDS, ENVIRONMENT
from plain_models import ANY_NAME, MAX_POSITIONS, PAIRS
from served_models import ask, serve_arguments, serving, translations

from ode_transformer.decoding.translate import load_from_arguments, translate
from ode_transformer.lab.pages.serve_command import load_models
from ode_transformer.support.errors import UserError

SOURCES = [source for source, _ in PAIRS]
BOUNDS = ("--max-bytes", 4000, "--max-lines", 50, "--batch-size", 8)


@pytest.fixture(scope="module")
def port(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = shutil.copytree(untrained.parent, tmp_path_factory.mktemp("second") / ANY_NAME)
    with serving(f"first={untrained}", f"second={folder}/model.pt", *BOUNDS) as port:
        yield port


@pytest.fixture(scope="module")
def expected(untrained: Path) -> dict[str, str]:
    """The translations of ``SOURCES`` by the command ``translate``."""
    args = serve_arguments(untrained)
    hub = load_from_arguments(args, untrained)
    return dict(zip(SOURCES, translate(hub, SOURCES, "text", beam=2, max_len_b=8), strict=True))


def test_a_line_for_each_line(port: int, expected: dict[str, str]) -> None:
    lines = [SOURCES[0], "", " \t", SOURCES[1], SOURCES[0]]
    assert translations(port, lines) == [expected[SOURCES[0]], "", "", expected[SOURCES[1]], expected[SOURCES[0]]]
    assert translations(port, []) == []
    assert translations(port, [SOURCES[0].replace(" ", "\n", 1)]) == [expected[SOURCES[0]]]
    status, headers, text = ask(port, "/translate-file?model=second", "\n".join(lines).encode())
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert headers["content-disposition"] == 'attachment; filename="translation.de"'
    assert text.decode() == "".join(f"{expected.get(line, '')}\n" for line in lines)


def test_a_language_in_letters_that_a_header_lacks(untrained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    (folder / "dict.de.txt").rename(folder / "dict.ελ.txt")
    with serving(folder / "model.pt", "--source-lang", "en", "--target-lang", "ελ") as port:
        status, headers, _ = ask(port, "/translate-file", SOURCES[0].encode())
    assert status == 200
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''translation.%CE%B5%CE%BB"


def test_several_models_and_n_best(port: int, expected: dict[str, str]) -> None:
    asked = {"lines": SOURCES[:2], "models": ["second", "first"], "beam": 4, "n_best": 3}
    systems = ask(port, "/translate", asked)[2]["systems"]
    assert [system["model"] for system in systems] == ["second", "first"]
    for line in systems[0]["n_best"]:
        scores = [hypothesis["score"] for hypothesis in line]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
    assert [line[0]["text"] for line in systems[0]["n_best"]] == systems[0]["translations"]
    assert systems[0]["translations"] == systems[1]["translations"]


def test_a_look_inside(port: int, expected: dict[str, str]) -> None:
    (system,) = ask(port, "/inspect", {"lines": [SOURCES[0]]})[2]["systems"]
    assert system["translation"] == expected[SOURCES[0]]
    assert [system["tokens"][side][-1] for side in ("source", "target")] == ["</s>", "</s>"]
    titles = [matrix["title"] for matrix in system["attention"]]
    assert titles[0] == "encoder layer 1: self-attention"
    weights = {entry["block"]: entry for entry in system["stage_weights"]}["encoder layer 1"]
    assert len(weights["tokens"]) == len(weights["weights"][0]) == len(system["tokens"]["source"])
    assert len(weights["weights"]) == 2  # stages of RK2
    for column in zip(*weights["weights"], strict=True):
        assert sum(column) == pytest.approx(1, abs=1e-3)


LONG = "x " * MAX_POSITIONS


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (
            *("/translate", {"lines": ["a"], "models": ["/etc/passwd"]}, 400),
            "models: /etc/passwd is not served; these are: first, second",
        ),
        ("/translate", {"lines": ["a"] * 51}, 413, "51 lines, at most 50 are allowed in a request"),
        ("/inspect", {"lines": ["\ud800"]}, 400, "lines.0: Input should be a valid string, unable to parse"),
        ("/translate", {"lines": ["a" * 4000]}, 413, "the request is larger than 4,000 bytes"),
        ("/translate", {"lines": ["a", LONG]}, 413, "the model takes at most 64"),
        ("/translate-file", b"a\n\xff\n", 400, "the file: line 2 is not UTF-8: byte 1 of it is 0xff"),
    ],
)
def test_refusals(port: int, path: str, body: object, status: int, message: str) -> None:
    answered, headers, answer = ask(port, path, body)
    assert (answered, list(answer)) == (status, ["error"])
    assert message in answer["error"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/../../../../etc/passwd", "//etc/passwd", "/%2e%2e/model.pt", "/docs"]
)
def test_no_file_is_served(port: int, path: str) -> None:
    assert ask(port, path)[0] == 404
    assert ask(port, "/translate")[0] == 405


@pytest.mark.parametrize(
    "headers", [{"Host": "attacker.example"}, {"Origin": "http://attacker.example"}, {"Host": "[", "Origin": "null"}]
)
def test_other_sites_are_refused(port: int, headers: dict[str, str]) -> None:
    assert ask(port, "/health", headers=headers)[0] == 403
    assert ask(port, "/health", headers={"Origin": f"http://127.0.0.1:{port}"})[0] == 200


def test_too_many_too_late(untrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ode_transformer.lab.pages import application

    begins, go_on = threading.Event(), threading.Event()
    search = application.search_all

    def slow_search(*args, **options):
        begins.set()
        go_on.wait(30)
        return search(*args, **options)

    monkeypatch.setattr(application, "search_all", slow_search)
    with serving(untrained, "--timeout", 2, "--batch-size", 1, "--max-waiting", 2) as port:
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(b"POST /translate-file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\na")
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(ask, port, "/translate", {"lines": ["a"]})
            assert begins.wait(30)
            second = pool.submit(ask, port, "/translate", {"lines": ["a", "b"]})
            while ask(port, "/health")[2]["waiting_lines"] < 2:
                assert not second.done()
            status, headers, answer = ask(port, "/translate", {"lines": ["a"]})
            assert (status, answer["error"]) == (429, "2 lines wait already")
            assert headers["retry-after"] == "5"
            for late in (first, second):
                assert late.result()[0] == 503
                assert late.result()[2] == {"error": "no translation within 2 seconds"}
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
        slow.close()
        go_on.set()
        assert ask(port, "/translate", {"lines": ["a"]})[0] == 200  # what was given up does not hold it up


def test_another_scheme(untrained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rk4"):
        load_models(serve_arguments(untrained, "--schemes", "rk4"))
    (tmp_path / "run").mkdir()
    model = make_model(tmp_path / "run", "--ode-coefficients", "tableau")
    trained, other = load_models(serve_arguments(model, "--schemes", "rk4"))
    assert (trained.name, other.name) == ("run", "run stepped by rk4")
    inspections = [model.inspect([model.encode(SOURCES[:1])[0][0]], 2)[0] for model in (trained, other)]
    assert [len(inspection.stage_weights[0].weights) for inspection in inspections] == [2, 4]


# --- a process of its own ------------------------------------------------------------------------


def start(model: Path) -> tuple[subprocess.Popen[str], int]:
    """Start the command; return its process and port."""
    command = [COMMANDS / "ode-transformer", "serve", model, "--cpu", "--port", "0", "--beam", "2", "--max-len-b", "8"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, env=ENVIRONMENT, **pipes)
    line = process.stdout.readline()
    match = re.fullmatch(r"serving \S+ at http://127\.0\.0\.1:(\d+)/  \(Ctrl-C stops\)\n", line)
    assert match, line
    return process, int(match[1])


@pytest.mark.slow
def test_40_clients_get_their_own_answers_and_a_signal_ends_it(untrained: Path, expected: dict[str, str]) -> None:
    """They ask at once for different lines, and the signal comes while the server has some in hand."""
    process, port = start(untrained)
    try:
        translations(port, SOURCES[:32])
        gate = threading.Barrier(40)

        def client(number: int) -> None:
            gate.wait()
            for turn in range(2):
                lines = [SOURCES[(number * 7 + turn * 3 + k) % len(SOURCES)] for k in range(1 + number % 3)]
                assert translations(port, lines) == [expected[line] for line in lines]

        with ThreadPoolExecutor(40) as pool:
            list(pool.map(client, range(40)))
        assert ask(port, "/health")[2]["waiting_lines"] == 0
        with ThreadPoolExecutor(1) as pool:  # what is in hand at the signal is still answered
            answer = pool.submit(translations, port, SOURCES)
            while not ask(port, "/health")[2]["waiting_lines"]:
                assert not answer.done()
            os.kill(process.pid, signal.SIGTERM)
            assert answer.result() == list(expected[line] for line in SOURCES)
        assert process.wait(30) == 0
        assert process.stdout.read() == "stopped\n"
    finally:
        process.kill()
        process.wait()
