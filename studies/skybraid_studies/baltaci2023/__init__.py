"""Baltaci et al. 2023: remote piloting over LTE and Starlink."""
