"""The shop's own documents: PDF pages and PNG pictures made with the standard library alone."""

from __future__ import annotations

import re
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project.shop import pdf, png

# --- PDF --------------------------------------------------------------------------------------------------------------


def texts(document: bytes) -> list[list[str]]:
    """The lines of each page."""
    pages = []
    for packed in re.findall(rb"stream\n(.*?)\nendstream", document, re.DOTALL):
        shown = re.findall(rb"\(((?:[^()\\]|\\.)*)\) Tj", zlib.decompress(packed))
        pages.append([re.sub(rb"\\(.)", rb"\1", line).decode("cp1252") for line in shown])
    return pages


def test_a_pdf_shows_its_lines() -> None:
    document = pdf.text_pdf("Title", ["Grüße (1)", "back\\slash", "50 €"])
    assert document.startswith(b"%PDF-1.4")
    assert document.endswith(b"%%EOF\n")
    assert texts(document) == [["Grüße (1)", "back\\slash", "50 €"]]


def test_a_long_text_fills_pages() -> None:
    lines = [str(number) for number in range(2 * pdf.LINES_A_PAGE + 1)]
    pages = texts(pdf.text_pdf("Title", lines))
    assert [len(page) for page in pages] == [pdf.LINES_A_PAGE, pdf.LINES_A_PAGE, 1]
    assert [line for page in pages for line in page] == lines


@pytest.mark.parametrize("count", [0, 1, 200])
def test_the_table_of_a_pdf_points_at_its_objects(count: int) -> None:
    document = pdf.text_pdf("Title", ["line"] * count)
    start = int(document.rsplit(b"startxref\n", 1)[1].split()[0])
    offsets = [int(line[:10]) for line in document[start:].splitlines()[3:] if line.endswith(b" n ")]
    assert document[start : start + 4] == b"xref"
    for number, offset in enumerate(offsets, start=1):
        assert document[offset:].startswith(b"%d 0 obj\n" % number)
    assert f"/Size {len(offsets) + 1}".encode() in document


# --- PNG --------------------------------------------------------------------------------------------------------------

pictures = st.tuples(st.integers(1, 8), st.integers(1, 8)).flatmap(
    lambda size: st.binary(min_size=3 * size[0] * size[1], max_size=3 * size[0] * size[1]).map(
        lambda pixels: png.Picture(*size, pixels)
    )
)


def filtered(picture: png.Picture, kind: int) -> bytes:
    """The same picture as other programs write it: rows stored as differences, by one of the format's filters."""
    stride = 3 * picture.width
    rows, above = b"", bytes(stride)
    for start in range(0, stride * picture.height, stride):
        row = picture.pixels[start : start + stride]
        left = bytes(3) + row[:-3]
        corner = bytes(3) + above[:-3]
        guess = {
            1: left,
            2: above,
            3: bytes((a + b) // 2 for a, b in zip(left, above, strict=True)),
            4: bytes(paeth(*three) for three in zip(left, above, corner, strict=True)),
        }[kind]
        rows += bytes([kind]) + bytes((value - other) & 255 for value, other in zip(row, guess, strict=True))
        above = row
    return rows


def paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    by_left, by_above, by_corner = abs(guess - left), abs(guess - above), abs(guess - corner)
    if by_left <= by_above and by_left <= by_corner:
        return left
    return above if by_above <= by_corner else corner


def with_rows(picture: png.Picture, rows: bytes) -> bytes:
    plain = png.write(picture)
    packed = zlib.compress(rows)
    head = plain[: plain.index(b"IDAT") - 4]
    body = struct.pack(">I", len(packed)) + b"IDAT" + packed + struct.pack(">I", zlib.crc32(b"IDAT" + packed))
    return head + body + plain[plain.index(b"IEND") - 4 :]


@given(pictures)
def test_what_was_written_is_read_again(picture: png.Picture) -> None:
    assert png.read(png.write(picture)) == picture


@given(pictures, st.integers(1, 4))
def test_pictures_of_other_programs_are_read(picture: png.Picture, kind: int) -> None:
    assert png.read(with_rows(picture, filtered(picture, kind))) == picture


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.binary(min_size=3, max_size=3))
def test_shrinking_one_colour_keeps_it(width: int, height: int, by: int, colour: bytes) -> None:
    large = png.Picture(width * by, height * by, colour * (width * by * height * by))
    assert png.shrink(large, width, height) == png.Picture(width, height, colour * (width * height))


def test_shrinking_takes_the_average() -> None:
    black_and_white = png.Picture(2, 2, bytes(3) + b"\xff" * 3 + b"\xff" * 3 + bytes(3))
    assert png.shrink(black_and_white, 1, 1).pixels == b"\x7f\x7f\x7f"


def test_a_drawing_is_the_same_for_the_same_name_only() -> None:
    assert png.drawing("Teapot", 20, 10) == png.drawing("Teapot", 20, 10)
    assert png.drawing("Teapot", 20, 10) != png.drawing("Lantern", 20, 10)


@pytest.mark.parametrize(
    "damaged",
    [
        b"GIF89a",
        png.write(png.Picture(1, 1, b"abc"))[:-8] + b"xxxxxxxx",
        png.write(png.Picture(1, 1, b"abc")).replace(b"\x08\x02\x00\x00\x00", b"\x10\x02\x00\x00\x00"),
    ],
)
def test_what_cannot_be_read_is_a_value_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"PNG|damaged|RGB"):
        png.read(damaged)
