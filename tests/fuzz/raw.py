"""Mutations of bytes, of any file."""

import random


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The bytes of a file with some of them flipped, cut, repeated, inserted or replaced."""
    at = draw.randrange(len(data) + 1)
    end = min(len(data), at + draw.choice((1, 1, 4, 64, 4096)))
    return draw.choice(
        (
            lambda: data[:at],
            lambda: data[at:],
            lambda: b"",
            lambda: data[:at] + data[end:],
            lambda: data[:at] + data[at:end] * draw.choice((2, 3, 100)) + data[end:],
            lambda: data[:at] + bytes(byte ^ (1 << draw.randrange(8)) for byte in data[at:end]) + data[end:],
            lambda: data[:at] + draw.randbytes(end - at) + data[end:],
            lambda: data[:at] + draw.choice(PIECES) + data[at:],
            lambda: draw.choice(PIECES) + data,
            lambda: data.replace(b"\n", draw.choice((b"\r\n", b"\r", b"\0", b""))),
            lambda: data.decode("utf-8", "replace").encode("utf-16"),
            lambda: draw.randbytes(draw.choice((1, 100, 10_000))),
        )
    )()


PIECES = (
    *(b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3(", b"\x80", b"\x1b[31m", b"\r", b"\n", b"\t"),
    *(b'"', b"'", b",", b"\\"),
    *(b"{", b"}", b"[", b"]", b":", b"- ", b"#", b"&a", b"*a", b"!!", b"%YAML 9.9\n", b"---\n", b"...\n"),
    *(b"\xe2\x80\xa8", b"\x85"),
    *(b"\0" * 100_000, b"x" * 1_000_000, "é".encode("latin-1"), "\ud800".encode("utf-8", "surrogatepass")),
    b"\n" * 10_000,
)
