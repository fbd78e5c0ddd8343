"""Text to SQL on SQLite: prompts, extraction, execution, comparison, and the three descriptors of a query."""

from elite_lightning.domains.sql.domain import SqlDomain
from elite_lightning.domains.sql.executor import DatabaseError, Limits

__all__ = ["DatabaseError", "Limits", "SqlDomain"]
