"""A server of untrained models in a thread of the tests, and a client for it."""

import argparse
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ode_transformer.lab.pages.arguments import serve
from ode_transformer.lab.pages.serve_command import build_server, load_models

Answer = tuple[int, dict[str, str], Any]


def serve_arguments(*words: object) -> argparse.Namespace:
    """Return the parsed options of the command."""
    parser = argparse.ArgumentParser()
    serve(parser)
    short = ["--cpu", "--port", "0", "--beam", "2", "--max-len-b", "8"]
    return parser.parse_args([*map(str, words), *short])


@contextmanager
def serving(*words: object) -> Iterator[int]:
    """Serve models in a thread; yields the port."""
    args = serve_arguments(*words)
    listener = socket.create_server((args.host, args.port), backlog=1024)
    server = build_server(args, load_models(args))
    server.config.timeout_keep_alive = 1  # in place of five seconds
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def ask(port: int, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str = "") -> Answer:
    """Send a request; an object is sent as JSON, and an answer of JSON is read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    kind = {"Content-Type": "text/plain" if isinstance(body, bytes) else "application/json"}
    connection.request(method or ("GET" if body is None else "POST"), path, raw, kind | (headers or {}))
    answer = connection.getresponse()
    content, fields = answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    is_json = fields.get("content-type") == "application/json"
    return answer.status, fields, json.loads(content) if is_json else content


def translations(port: int, lines: Sequence[str], **values: Any) -> list[str]:
    """Return the translations of lines by the first model."""
    status, _, answer = ask(port, "/translate", {"lines": list(lines), **values})
    assert status == 200, answer
    return answer["systems"][0]["translations"]
