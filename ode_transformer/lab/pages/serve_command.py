"""``ode-transformer serve``: a page on this machine to try models, and an endpoint that translates."""

import argparse
import ipaddress
import signal
import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ode_transformer.decoding.translate import load_from_arguments, search_options
from ode_transformer.lab.pages.batches import BatchQueue
from ode_transformer.lab.pages.requests import Limits
from ode_transformer.support.arguments import named_systems
from ode_transformer.support.errors import UserError

if TYPE_CHECKING:
    from ode_transformer.lab.pages.application import ServedModel

LOOPBACK = ("localhost", "127.0.0.1", "::1")
BEAMS = 4  # times the default beam: the largest that a request may name
CONNECTIONS = 1000


def run(args: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    if not args.host:  # it would be every address
        raise UserError("--host: an address, such as 127.0.0.1; 0.0.0.0 is every address of this machine")
    family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    with socket.create_server((args.host, args.port), family=family, backlog=1024) as listener:
        models = load_models(args)
        server = build_server(args, models)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)  # also before the server runs; it sends them again afterwards
        host = f"[{args.host}]" if ":" in args.host else args.host
        names, port = ", ".join(model.name for model in models), listener.getsockname()[1]
        print(f"serving {names} at http://{host}:{port}/  (Ctrl-C stops)", flush=True)
        if not is_loopback(args.host):
            print("everyone who reaches this address can use it: there is no password", flush=True)
        server.run(sockets=[listener])
    print("stopped", flush=True)


def build_server(args: argparse.Namespace, models: "list[ServedModel]") -> uvicorn.Server:
    """Return uvicorn's server of the models, not started yet."""
    from ode_transformer.lab.pages.application import TranslationServer

    limits = Limits(args.max_bytes, args.max_lines, BEAMS * args.beam, args.timeout)
    queue = BatchQueue(args.batch_size, args.max_waiting)
    hosts = {*LOOPBACK, args.host} if is_loopback(args.host) else None
    config = uvicorn.Config(
        TranslationServer(models, queue, limits, args.beam).application(hosts),
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


def load_models(args: argparse.Namespace) -> "list[ServedModel]":
    """Load the models of the command line, each as trained and under each of ``--schemes``."""
    search, hubs = search_options(args), {}
    for name, path in named_systems(args).items():
        for scheme in (None, *args.schemes):
            shown = name if scheme is None else f"{name} stepped by {scheme}"
            hubs[shown] = load_from_arguments(args, path, scheme)
    from ode_transformer.lab.pages.application import ServedModel  # it imports fairseq

    models = [ServedModel(name, hub, args.max_tokens, **search) for name, hub in hubs.items()]
    if len({(model.source_lang, model.target_lang) for model in models}) > 1:
        pairs = [f"{model.name} translates {model.source_lang} to {model.target_lang}" for model in models]
        raise UserError(f"{', '.join(pairs)}; one page is for one pair of languages")
    return models


def connections_with_timeout(seconds: float) -> type[H11Protocol]:
    """Return uvicorn's protocol, which closes a connection without a request's head for ``seconds``, or twice that.

    uvicorn itself closes only connections that are silent between two requests; others could take all of them.
    """

    class Connection(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(seconds, self._close_if_silent, None)

        def _close_if_silent(self, last_request: object) -> None:
            answers = self.cycle is not None and not self.cycle.response_complete
            if not answers and self.cycle is last_request:
                self.transport.close()
            elif not self.transport.is_closing():
                self.loop.call_later(seconds, self._close_if_silent, self.cycle)

    return Connection


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
