"""Questions beyond the papers, over many runs of LTE and Starlink."""
