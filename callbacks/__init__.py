"""Lightning callbacks: thin, the work is in the rooms of `elite_lightning`."""

from callbacks.pass_at_k import PassAtKEvaluation
from callbacks.pre_search import MapElitesPreSearch, PreSearch

__all__ = ["MapElitesPreSearch", "PassAtKEvaluation", "PreSearch"]
