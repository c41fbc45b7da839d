"""``ode-transformer serve``: a page on this machine to try models, and an endpoint that translates."""

from __future__ import annotations

import argparse
import ipaddress
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from ode_transformer.decoding.translate import add_model_arguments, load_from_arguments
from ode_transformer.pages.application import TranslationServer
from ode_transformer.pages.batches import BatchWorker
from ode_transformer.pages.connections import connections_with_timeout
from ode_transformer.pages.requests import Limits
from ode_transformer.pages.served_model import ServedModel, check_same_languages
from ode_transformer.support.arguments import non_negative_int, positive_int, waiting_time
from ode_transformer.support.errors import UserError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HELD_REQUESTS = 32  # bodies of full size in memory at once
BEAMS = 4  # times the default beam: the largest that a request may name
CONNECTIONS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer serve``."""
    add_model_arguments(parser)
    parser.add_argument(
        "--path",
        required=True,
        type=Path,
        action="append",
        metavar="FILE",
        help="checkpoint of a model; again for more",
    )
    parser.add_argument("--names", nargs="+", metavar="NAME", help="names of the models (default: their folders)")
    parser.add_argument(
        "--schemes", nargs="+", default=[], metavar="NAME", help="serve each model also stepped by these schemes"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine)")
    parser.add_argument("--port", type=non_negative_int, default=8000, help="port; 0 for any free one (default: 8000)")
    parser.add_argument(
        "--max-bytes", type=positive_int, default=1_000_000, help="bytes of a request (default: 1000000)"
    )
    parser.add_argument("--max-lines", type=positive_int, default=1000, help="lines of a request (default: 1000)")
    parser.add_argument(
        "--max-waiting", type=positive_int, default=5000, help="lines of all requests that wait (default: 5000)"
    )
    parser.add_argument(
        "--timeout", type=waiting_time, default=120.0, help="seconds until a request is refused (default: 120)"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    listener = listen(args.host, args.port)
    with listener:
        address = f"http://{shown_host(args.host)}:{listener.getsockname()[1]}/"
        models = load_models(args)
        server = build_server(args, models)
        with signals_end(server):
            print(f"serving {', '.join(model.name for model in models)} at {address}  (Ctrl-C stops)", flush=True)
            if not is_loopback(args.host):
                print("everyone who reaches this address can use it: there is no password", flush=True)
            server.run(sockets=[listener])
    print("stopped", flush=True)
    return 0


def build_server(args: argparse.Namespace, models: list[ServedModel]) -> uvicorn.Server:
    """Return uvicorn's server of the models, not started yet."""
    limits = Limits(
        request_bytes=args.max_bytes,
        held_bytes=HELD_REQUESTS * args.max_bytes,
        lines=args.max_lines,
        beam=BEAMS * args.beam,
        seconds=args.timeout,
    )
    worker = BatchWorker(args.batch_size, args.max_waiting)
    hosts = {*LOOPBACK, args.host} if is_loopback(args.host) else None
    config = uvicorn.Config(
        TranslationServer(models, worker, limits, args.beam, hosts).application(),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=connections_with_timeout(args.timeout),
        loop="asyncio",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=int(args.timeout) + 1,
    )
    return uvicorn.Server(config)


def load_models(args: argparse.Namespace) -> list[ServedModel]:
    """Load the models of the command line, each as trained and under each of ``--schemes``.

    :raises UserError: a model or a name is refused
    """
    names = args.names or default_names(args.path)
    if len(names) != len(args.path):
        raise UserError(f"--names: {len(names)} for {len(args.path)} models")
    search = {"lenpen": args.lenpen, "max_len_b": args.max_len_b}
    models: list[ServedModel] = []
    for name, path in zip(names, args.path, strict=True):
        for scheme in (None, *args.schemes):
            shown = name if scheme is None else f"{name} stepped by {scheme}"
            if shown in {model.name for model in models}:
                raise UserError(f"--names, --path, --schemes: {shown} is named twice")
            hub = load_from_arguments(args, path, scheme)
            models.append(ServedModel(shown, hub, args.max_tokens, **search))
    check_same_languages(models)
    return models


def default_names(paths: list[Path]) -> list[str]:
    """Return short names of checkpoints that tell them apart: parts of their paths from the first that differs."""
    parts = [path.absolute().with_suffix("").parts for path in paths]
    if len(paths) == 1:
        folders = [name for name in parts[0][:-1] if name not in ("/", "model", "checkpoints")]
        return [folders[-1] if folders else parts[0][-1]]
    if len(set(parts)) < len(parts):
        return [str(path) for path in paths]
    common = min(len(p) for p in parts)
    first = next((n for n in range(common) if len({p[n] for p in parts}) > 1), common)
    last = next((n for n in range(1, common - first) if len({p[-n] for p in parts}) > 1), common - first)
    return ["/".join(p[first : len(p) - last + 1]) or str(path) for p, path in zip(parts, paths, strict=True)]


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    :raises UserError: the address cannot be used
    """
    if port > 65535:
        raise UserError(f"--port {port}: at most 65535 is allowed")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: {error.strerror or error}") from error


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown_host(host: str) -> str:
    """Return an address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


@contextmanager
def signals_end(server: uvicorn.Server) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the server and not the process, to which uvicorn sends them again as it ends."""

    def end(number: int, frame: object) -> None:
        server.should_exit = True

    handlers = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
