"""Scenarios, results, and the statistics that judge them.

Internal: public names are those of `skybraid`.
"""
