"""How alike the responses of a group are, as matrices of numbers: what stands between text and an objective."""

from elite_lightning.similarity.base import Similarity
from elite_lightning.similarity.embeddings import SentenceEmbeddings
from elite_lightning.similarity.trees import SyntaxTrees

__all__ = ["SentenceEmbeddings", "Similarity", "SyntaxTrees"]
