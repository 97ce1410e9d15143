"""Every scheduler with every congestion control over one scenario, as one table (`docs/compare.md`)."""

from skybraid.execute.compare import compare, text, write

__all__ = ["compare", "text", "write"]
