"""Lee et al. 2021, MuTran: control messages duplicated over several paths, and equations for their delay."""
