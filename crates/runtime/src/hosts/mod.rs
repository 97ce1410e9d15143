//! The hosts of a run in real time: sockets in place of simulated wires.

pub mod datagrams;
