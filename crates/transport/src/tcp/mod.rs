//! One TCP subflow: outstanding data, received data, loss recovery and timers.

pub mod acks;
pub mod ceiling;
pub mod prr;
pub mod rack;
pub mod rate;
pub mod receiver;
pub mod receiver_rtt;
pub mod scoreboard;
pub mod spurious;
pub mod subflow;
pub mod tail_probe;
