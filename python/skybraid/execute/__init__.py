"""Runs of scenarios, simulated or emulated, and the datasets that keep them.

Internal: public names are those of `skybraid`.
"""
