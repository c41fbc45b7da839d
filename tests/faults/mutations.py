"""Random changes to valid inputs, for fuzzing parsers."""

from __future__ import annotations

import random
from collections.abc import Sequence

# Numbers at the edges of what formats can state, and texts that parsers treat in a special way.
NUMBERS = [b"0", b"-1", b"65536", b"2147483648", b"18446744073709551616", b"9" * 5000, b"1e999", b"nan"]
SNIPPETS = [b"\0", b"\n", b"\r\n", b"\r", b"\t", b'"', b"'", b"\\", b"<", b">", b"&", b"%", b"{}", b"[", b"|||", b"..",
            b"/etc/passwd", b"\xff\xfe", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\x1f\x8b", b"PK\x03\x04"]  # fmt: skip


def mutate(generator: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return a seed after one to six random changes."""
    data = bytearray(generator.choice(seeds))
    for _ in range(generator.choice((1, 1, 1, 2, 3, 6))):
        start = generator.randrange(len(data) + 1)
        end = min(len(data), start + generator.choice((1, 1, 2, 4, 8, 64)))
        match generator.randrange(9):
            case 0 | 1:
                data[start:end] = bytes(byte ^ (1 << generator.randrange(8)) for byte in data[start:end])
            case 2:
                data[start:end] = generator.randbytes(end - start)
            case 3:
                data[start:end] = b""
            case 4:
                data[start:start] = data[start:end] * generator.choice((1, 2, 100))
            case 5:
                data[start:end] = bytes([generator.choice((0, 1, 0x7F, 0x80, 0xFF))]) * (end - start)
            case 6:
                data[start:start] = generator.choice(SNIPPETS + NUMBERS)
            case 7:
                other = generator.choice(seeds)
                cut = generator.randrange(len(other) + 1)
                data[start:] = other[cut:]
            case 8:
                del data[start:]
    return bytes(data)
