"""Palazzi et al. 2007: Westwood and split connections over a satellite."""
