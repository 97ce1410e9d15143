//! The two hosts of a run over real sockets.

pub mod kernel;
