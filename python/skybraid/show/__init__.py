"""Results for people: reports, figures, explanations.

Public modules are `skybraid.explain`, `skybraid.plots` and `skybraid.report`.
"""
