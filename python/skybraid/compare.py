"""Every scheduler with every congestion control over one scenario, ranked or as one table (`docs/compare.md`)."""

from skybraid.execute.compare import Choice, compare, text, write
from skybraid.execute.ranking import Ranking, rank

__all__ = ["Choice", "Ranking", "compare", "rank", "text", "write"]
