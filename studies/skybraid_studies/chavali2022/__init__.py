"""Chavali 2022: MPTCP over LTE and a satellite in low orbit, and the scenario lines of its testbed."""
