"""File server for tests of downloads, with the faults that servers have, and sources that name it."""

import gzip
import hashlib
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ode_transformer.lab.corpora.download import Source

CONTENT = random.Random(0).randbytes(100_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class FileServer:
    """Settings of the server, and its record of requests.

    :param files: content by name; every other name is answered by 404
    :param ranges: answer requests for a range of bytes
    :param shift: bytes by which it answers another range than it was asked for
    :param packs: compress the content by gzip, and say so
    :param cuts: bytes after which the connection ends, for each of the next answers; None: the answer is complete
    :param hangs: keep the connection open, without a byte, where it would be cut
    :param types: Content-Type by name
    :param codes: status by name, instead of 200
    :param tags: ETag of each of the next answers
    :param fetched: name and Range header of every request
    """

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    shift: int = 0
    packs: bool = False
    cuts: list[int | None] = field(default_factory=list)
    hangs: bool = False
    types: dict[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    fetched: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"


@contextmanager
def serving() -> Iterator[FileServer]:
    server, ended = FileServer(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            name, byte_range = self.path[1:], self.headers.get("Range", "")
            server.fetched.append((name, byte_range))
            self.close_connection = True
            if name not in server.files:
                self.send_error(404)
                return
            content, start = server.files[name], 0
            if (match := re.fullmatch(r"bytes=(\d+)-", byte_range)) and server.ranges and not server.packs:
                start = int(match[1]) + server.shift
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(server.codes.get(name, 200))
                if server.packs:
                    content = gzip.compress(content)
                    self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(content) - start))
            if name in server.types:
                self.send_header("Content-Type", server.types[name])
            if server.tags:
                self.send_header("ETag", server.tags.pop(0))
            self.end_headers()
            cut = server.cuts.pop(0) if server.cuts else None
            self.wfile.write(content[start:] if cut is None else content[start:][:cut])
            if cut is not None and server.hangs:
                ended.wait()

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.port = http.server_port
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        ended.set()
        http.shutdown()
        http.server_close()


def source(server: FileServer, *names: str, checksum: bool = True, **values: object) -> Source:
    """Return a source, a.tgz with ``CONTENT``, at these names of the server."""
    published = {"sha256": SHA256, "checksum_from": "us", "bytes": len(CONTENT)} if checksum else {}
    urls = [server.url(name) for name in names or ("a.tgz",)]
    return Source.model_validate({"file": "a.tgz", "urls": urls, "licence": "free", **published, **values})
