"""Pedrazzi 2020: MPTCP over geostationary satellites."""
