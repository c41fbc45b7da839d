"""Check of the source list: every address is asked by HEAD whether it gives its file, without a download."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ode_transformer.corpora.http_answer import Deadline, content_length, is_page, open_url
from ode_transformer.corpora.sources import Source
from ode_transformer.support.errors import one_line
from ode_transformer.support.tables import markdown_table

TIMEOUT = 30.0  # seconds for one address
REQUESTS = 8  # at a time


@dataclass(frozen=True)
class AddressCheck:
    """Answer to HEAD.

    :param url: the address
    :param answer: status, or why there is none
    :param size: bytes that the server states
    :param usable: the address gives a file, of the published size if both sizes are known
    """

    url: str
    answer: str
    size: int | None = None
    usable: bool = False


def check_sources(sources: Mapping[str, Source]) -> tuple[str, list[str]]:
    """Ask all addresses.

    :returns: the answers as a Markdown table, and the names of the sources that no address gives
    """
    addresses = [(name, source, url) for name, source in sources.items() for url in source.urls]
    with ThreadPoolExecutor(REQUESTS) as pool:
        checks = list(pool.map(lambda address: check_address(address[2], address[1].bytes), addresses))
    rows: list[tuple[str, str, str, str]] = []
    usable: set[str] = set()
    for (name, _, _), check in zip(addresses, checks, strict=True):
        rows.append((f"`{name}`", check.url, check.answer, "–" if check.size is None else f"{check.size:,}"))
        usable |= {name} if check.usable else set()
    usable |= {name for name, source in sources.items() if usable & {copy.source for copy in source.copies}}
    rows += [(f"`{name}`", "on request", "", "–") for name, source in sources.items() if source.obtain]
    unavailable = [name for name, source in sources.items() if source.urls and name not in usable]
    return markdown_table(("source", "address", "answer", "bytes"), rows, "lllr"), unavailable


def check_address(url: str, published_size: int | None) -> AddressCheck:
    """Ask one address by HEAD, redirects followed.

    :param published_size: bytes of the file, if known
    """
    request = urllib.request.Request(url, method="HEAD")
    try:
        with Deadline(TIMEOUT) as deadline, open_url(request, deadline, TIMEOUT) as answer:
            size, is_a_page, status = content_length(answer), is_page(answer), f"{answer.status} {answer.reason}"
    except urllib.error.HTTPError as error:
        return AddressCheck(url, one_line(f"{error.code} {error.reason}"))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return AddressCheck(url, one_line(error) or type(error).__name__)
    if is_a_page:
        return AddressCheck(url, f"{status}, a page instead of the file", size)
    if None not in (size, published_size) and size != published_size:
        return AddressCheck(url, f"{status}, {published_size:,} bytes published", size)
    return AddressCheck(url, status, size, usable=True)
