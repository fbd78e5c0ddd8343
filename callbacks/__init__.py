"""Lightning callbacks: thin, the work is in the rooms of `elite_lightning`."""

from callbacks.pass_at_k import PassAtKEvaluation
from callbacks.pre_search import IidPreSearch, MapElitesPreSearch, PreSearch

__all__ = ["IidPreSearch", "MapElitesPreSearch", "PassAtKEvaluation", "PreSearch"]
