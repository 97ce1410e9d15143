"""Studies read, run and judged: experiments, claims, points, scorecards."""
