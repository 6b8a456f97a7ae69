"""Find where a command or a reply ends in a RESP byte stream, without interpreting more than that."""

from __future__ import annotations

CRLF = b"\r\n"
_ONE_LINE = frozenset(b"+-:_,#(")
_WITH_BODY = frozenset(b"$=!")
_NESTED = frozenset(b"*~>%")


def parse_command(buffer: bytes | bytearray, start: int = 0) -> tuple[list[bytes], int] | None:
    """Read one request (an array of bulk strings, or an inline command).

    Returns its arguments and the offset behind it, or None while bytes are missing.
    Raises ValueError on anything that is no request.
    """
    line_end = buffer.find(CRLF, start)
    if line_end < 0:
        return None
    line = bytes(buffer[start:line_end])
    at = line_end + 2
    if not line.startswith(b"*"):
        return line.split(), at
    args = []
    for _ in range(int(line[1:])):
        line_end = buffer.find(CRLF, at)
        if line_end < 0:
            return None
        header = bytes(buffer[at:line_end])
        if not header.startswith(b"$"):
            raise ValueError(f"a request holds bulk strings only, found {header[:40]!r}")
        body = line_end + 2
        at = body + int(header[1:]) + 2
        if at > len(buffer):
            return None
        args.append(bytes(buffer[body : at - 2]))
    return args, at


class ReplyScanner:
    """Grows with the bytes of one reply, RESP2 or RESP3, until it is whole.

    Remembers where it stopped, so that a large reply in many pieces is looked at once.
    """

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._at = 0
        self._missing = 1

    def feed(self, data: bytes) -> None:
        self.buffer += data

    def take(self) -> bytes | None:
        """Cut the first whole reply off the buffer, or return None while bytes are missing."""
        while self._missing:
            end = self._element_end()
            if end is None:
                return None
            self._at = end
        reply = bytes(self.buffer[: self._at])
        del self.buffer[: self._at]
        self._at, self._missing = 0, 1
        return reply

    def _element_end(self) -> int | None:
        line_end = self.buffer.find(CRLF, self._at)
        if line_end < 0:
            return None
        kind = self.buffer[self._at]
        value = bytes(self.buffer[self._at + 1 : line_end])
        end = line_end + 2
        if kind in _ONE_LINE:
            self._missing -= 1
        elif kind in _WITH_BODY:
            length = int(value)
            if length >= 0:
                end += length + 2
            if end > len(self.buffer):
                return None
            self._missing -= 1
        elif kind in _NESTED:
            children = max(int(value), 0) * (2 if kind == ord("%") else 1)
            self._missing += children - 1
        else:
            raise ValueError(f"no reply starts like {bytes(self.buffer[self._at : line_end])[:40]!r}")
        return end
