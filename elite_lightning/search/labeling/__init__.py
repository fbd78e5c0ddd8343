"""Approaches named by a labeler instead of the domain: an induced vocabulary, frozen before the search aims."""

from elite_lightning.search.labeling.chat import Endpoint
from elite_lightning.search.labeling.labeler import Labeler, LabelingSession, LlmLabeler, Solved
from elite_lightning.search.labeling.vocabulary import OTHER, Approach, Vocabulary

__all__ = ["OTHER", "Approach", "Endpoint", "Labeler", "LabelingSession", "LlmLabeler", "Solved", "Vocabulary"]
