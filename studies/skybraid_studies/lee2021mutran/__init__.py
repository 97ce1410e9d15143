"""Lee et al. 2021, MuTran: control duplicated over several paths, and its mathematics."""
