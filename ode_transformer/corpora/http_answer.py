"""HTTP answers that must arrive within a deadline.

A socket's time-out limits the wait for the next byte only. A server that sends a byte a minute, or headers without end,
never meets it. A deadline therefore closes the connection unless the reader confirms in time that data arrives.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import urllib.request
from types import TracebackType

USER_AGENT = "Mozilla/5.0 (compatible; ode-transformer)"  # some servers refuse Python's own name
PAGE_TYPES = ("text/html", "application/xhtml+xml")


class Deadline:
    """Time limit after which all sockets of a request are shut down, so that blocked reads return.

    :param seconds: time until the deadline, counted from the start and from each call of ``extend``
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._expire)

    def __enter__(self) -> Deadline:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def extend(self) -> None:
        """Restart the countdown."""
        self._timer.cancel()
        self._timer = threading.Timer(self.seconds, self._expire)
        self._start()

    def watch(self, connection: socket.socket) -> None:
        """Shut a socket down, too, when the deadline expires.

        :raises TimeoutError: the deadline has expired already
        """
        self._sockets.append(connection)
        if self.expired:
            raise TimeoutError("timed out")

    def _start(self) -> None:
        self._timer.daemon = True
        self._timer.start()

    def _expire(self) -> None:
        self.expired = True
        for connection in self._sockets:
            with contextlib.suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)


def open_url(request: urllib.request.Request, deadline: Deadline, read_timeout: float) -> http.client.HTTPResponse:
    """Return the answer to a request, redirects followed.

    :param read_timeout: seconds until a connection or the next byte must come
    :raises OSError: no connection, a failed request (``urllib.error.HTTPError``), or a time-out
    :raises http.client.HTTPException: the answer does not follow the protocol
    :raises ValueError: an address is malformed
    """

    class WatchedHttp(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class WatchedHttps(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class HttpHandler(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(WatchedHttp, request)

    class HttpsHandler(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(WatchedHttps, request)

    request.add_header("User-Agent", USER_AGENT)
    opener = urllib.request.OpenerDirector()
    for handler in (  # those of urllib but for FTP, whose connections no deadline watches
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        HttpHandler(),
        HttpsHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    answer: http.client.HTTPResponse = opener.open(request, timeout=read_timeout)
    return answer


def content_length(answer: http.client.HTTPResponse) -> int | None:
    """Return the bytes that an answer says it has; None if it says nothing, or nothing possible."""
    length = answer.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None


def is_page(answer: http.client.HTTPResponse) -> bool:
    """Return whether an answer is a web page, as where a file has moved."""
    return answer.headers.get_content_type() in PAGE_TYPES
