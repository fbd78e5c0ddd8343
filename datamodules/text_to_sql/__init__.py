"""Text-to-SQL benchmarks in their official layouts as problem sources, each named by its folder."""

from datamodules.text_to_sql.ambiqt import AmbiqtSource
from datamodules.text_to_sql.ambrosia import AmbrosiaSource
from datamodules.text_to_sql.bird import BirdSource
from datamodules.text_to_sql.spider import SpiderSource

__all__ = ["AmbiqtSource", "AmbrosiaSource", "BirdSource", "SpiderSource"]
