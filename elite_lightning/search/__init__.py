"""Searches that fill an archive before training, and their journal."""

from elite_lightning.search.attempt import Attempt
from elite_lightning.search.base import ArchiveSearch
from elite_lightning.search.identity import search_fingerprints
from elite_lightning.search.iid import IidSearch
from elite_lightning.search.journal import JournalError, SearchJournal
from elite_lightning.search.labeling import Endpoint, Labeler, LlmLabeler, Vocabulary
from elite_lightning.search.map_elites import MapElitesSearch
from elite_lightning.search.report import SearchProgress, SearchReport, side_by_side
from elite_lightning.search.settings import SearchSettings

__all__ = [
    "ArchiveSearch",
    "Attempt",
    "Endpoint",
    "IidSearch",
    "JournalError",
    "Labeler",
    "LlmLabeler",
    "MapElitesSearch",
    "SearchJournal",
    "SearchProgress",
    "SearchReport",
    "SearchSettings",
    "Vocabulary",
    "search_fingerprints",
    "side_by_side",
]
