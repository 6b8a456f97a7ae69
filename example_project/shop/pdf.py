"""Text pages as a PDF, with nothing but the standard library."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

LINES_A_PAGE = 54
_FONT_SIZE, _LEADING, _LEFT, _TOP = 11, 14, 56, 800  # points, on A4
_HEAD = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"


def text_pdf(title: str, lines: Sequence[str]) -> bytes:
    """An A4 document in Courier, a page for every LINES_A_PAGE lines. Letters outside cp1252 become `?`."""
    pages = [lines[start : start + LINES_A_PAGE] for start in range(0, len(lines), LINES_A_PAGE)] or [[]]
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>",
        b"<< /Title (" + _escaped(title) + b") >>",
    ]
    for number, page in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >>"
            b" /Contents %d 0 R >>" % (6 + 2 * number)
        )
        objects.append(_stream(page))
    return _document(objects)


def _stream(lines: Sequence[str]) -> bytes:
    shown = b"\n".join(b"(" + _escaped(line) + b") Tj T*" for line in lines)
    text = b"BT /F1 %d Tf %d TL %d %d Td\n%b\nET" % (_FONT_SIZE, _LEADING, _LEFT, _TOP, shown)
    packed = zlib.compress(text)
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(packed), packed)


def _document(objects: Sequence[bytes]) -> bytes:
    parts, offsets, at = [_HEAD], [], len(_HEAD)
    for number, body in enumerate(objects, start=1):
        offsets.append(at)
        parts.append(b"%d 0 obj\n%b\nendobj\n" % (number, body))
        at += len(parts[-1])
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    parts.append(
        b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R /Info 4 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, table, len(objects) + 1, at)
    )
    return b"".join(parts)


def _escaped(text: str) -> bytes:
    raw = text.encode("cp1252", "replace")
    return raw.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
