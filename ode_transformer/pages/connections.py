"""Connections of clients: closed if a request does not begin in time, so that silent clients do not hold them all."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def connections_with_timeout(seconds: float) -> type[H11Protocol]:
    """Return uvicorn's protocol, with a bound on the time until the head of a request is there.

    uvicorn itself closes only connections that are silent between two requests.

    :param seconds: from the start of the connection, or from the first byte of a further request, to the end of a head
    """

    class Connection(H11Protocol):
        """A connection that waits for a request for a limited time."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            """Begin to wait."""
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            """Read a part of a request; wait for the rest of its head."""
            super().data_received(data)
            if self._answers:
                self._stop_waiting()
            elif self._deadline is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            """End."""
            self._stop_waiting()
            super().connection_lost(exc)

        @property
        def _answers(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _wait(self) -> None:
            self._deadline = self.loop.call_later(seconds, self._close_unless_it_answers)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _close_unless_it_answers(self) -> None:
            self._deadline = None
            if not self._answers:
                self.transport.close()

    return Connection
