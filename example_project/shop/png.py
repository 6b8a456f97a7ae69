"""Pictures as PNG: write, read, shrink and draw, with nothing but the standard library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB = 2  # the colour type of three bytes a pixel


@dataclass(frozen=True)
class Picture:
    """Pixels, three bytes each, row by row."""

    width: int
    height: int
    pixels: bytes


def write(picture: Picture) -> bytes:
    """The PNG file of a picture."""
    stride = 3 * picture.width
    rows = b"".join(
        b"\0" + picture.pixels[start : start + stride] for start in range(0, stride * picture.height, stride)
    )
    head = struct.pack(">IIBBBBB", picture.width, picture.height, 8, _RGB, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def read(data: bytes) -> Picture:
    """The picture in a PNG file. Raises ValueError for anything but 8-bit RGB without interlacing."""
    if not data.startswith(_SIGNATURE):
        raise ValueError("not a PNG file")
    chunks = list(_chunks(data))
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
    if kind != [8, _RGB, 0, 0, 0]:
        raise ValueError("only 8-bit RGB without interlacing can be read")
    packed = b"".join(body for name, body in chunks if name == b"IDAT")
    return Picture(width, height, _unfiltered(zlib.decompress(packed), 3 * width, height))


def shrink(picture: Picture, width: int, height: int) -> Picture:
    """A smaller copy: each pixel is the average of those it stands for."""
    pixels = bytearray()
    for row in range(height):
        top, bottom = row * picture.height // height, (row + 1) * picture.height // height
        for column in range(width):
            left, right = column * picture.width // width, (column + 1) * picture.width // width
            covered = b"".join(
                picture.pixels[3 * (y * picture.width + left) : 3 * (y * picture.width + right)]
                for y in range(top, bottom)
            )
            count = len(covered) // 3
            pixels += bytes(sum(covered[colour::3]) // count for colour in range(3))
    return Picture(width, height, bytes(pixels))


def drawing(seed: str, width: int = 320, height: int = 240) -> Picture:
    """A pattern for a product without a photograph; the same seed gives the same picture."""
    mark = zlib.crc32(seed.encode())
    red, green, blue = mark & 255, mark >> 8 & 255, mark >> 16 & 255
    size = 16 + (mark >> 24) % 32
    rows = bytearray()
    for y in range(height):
        for x in range(width):
            dark = (x // size + y // size) % 2
            rows += bytes(
                ((red + x * 64 // width) >> dark & 255, (green + y * 64 // height) >> dark & 255, blue >> dark)
            )
    return Picture(width, height, bytes(rows))


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if data[at + 8 + length : at + 12 + length] != struct.pack(">I", zlib.crc32(name + body)):
            raise ValueError(f"the chunk {name!r} is damaged")
        yield name, body
        at += 12 + length


def _unfiltered(raw: bytes, stride: int, height: int) -> bytes:
    out = bytearray()
    above = bytearray(stride)
    for start in range(0, height * (stride + 1), stride + 1):
        kind, row = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for at in range(stride) if kind else ():
            left, up, corner = (row[at - 3], above[at], above[at - 3]) if at >= 3 else (0, above[at], 0)
            row[at] = row[at] + (left, up, (left + up) // 2, _paeth(left, up, corner))[kind - 1] & 255
        out += row
        above = row
    return bytes(out)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))
