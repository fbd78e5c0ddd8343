"""Text to SQL on SQLite: prompts, extraction, execution, comparison, and the three descriptors of a query."""

from elite_lightning.domains.sql.ddl_prompt import DdlPrompt
from elite_lightning.domains.sql.domain import SqlDomain
from elite_lightning.domains.sql.executor import DatabaseError, Limits
from elite_lightning.domains.sql.prompts import CompactPrompt, SqlPrompt

__all__ = ["CompactPrompt", "DatabaseError", "DdlPrompt", "Limits", "SqlDomain", "SqlPrompt"]
