//! TCP, as one subflow of a connection: what is outstanding, what has arrived, and when to send.

pub mod ceiling;
pub mod prr;
pub mod rack;
pub mod rate;
pub mod receiver;
pub mod scoreboard;
pub mod spurious;
pub mod subflow;
pub mod tail_probe;
