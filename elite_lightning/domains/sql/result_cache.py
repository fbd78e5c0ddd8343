"""Remember what queries returned, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict

from elite_lightning.domains.sql.compare import Rows
from elite_lightning.domains.sql.session import Failure

_ENTRY_BYTES = 500  # the key, the entry, and the containers around the rows
_ROW_BYTES = 64
_CELL_BYTES = 48  # a Python object's own size, beside the characters of a text


class ResultCache:
    """Results by database content and SQL; the least recently used leave first.

    Args:
        max_bytes: What the results may take together, estimated.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._results: OrderedDict[tuple[bytes, str], tuple[Rows | Failure, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._results)

    def get(self, content: bytes, sql: str) -> Rows | Failure | None:
        """What the query returned on this content, or None if that is not known."""
        found = self._results.get((content, sql))
        if found is None:
            return None
        self._results.move_to_end((content, sql))
        return found[0]

    def put(self, content: bytes, sql: str, result: Rows | Failure, result_bytes: int) -> None:
        """Remember a result; one that would take a quarter of the room is not worth what it drives out."""
        size = _ENTRY_BYTES + len(sql) + result_bytes
        if isinstance(result, Rows):
            size += len(result.rows) * (_ROW_BYTES + result.columns * _CELL_BYTES)
        if size > self.max_bytes // 4 or (content, sql) in self._results:
            return
        self._results[content, sql] = (result, size)
        self.bytes += size
        while self.bytes > self.max_bytes:
            self.bytes -= self._results.popitem(last=False)[1][1]
