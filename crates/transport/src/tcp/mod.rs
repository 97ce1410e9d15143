//! One TCP subflow. In the order in which the files explain it:
//!
//! 1. `receiver`: data in order and beyond holes; `acks`: when it is acknowledged; `receiver_rtt`: the round-trip time
//!    as the receiver sees it;
//! 2. `scoreboard`: segments sent, acknowledged and lost, by `rack` or by counting; `rate`: the rate of delivery;
//! 3. `tail_probe`: a probe before the timeout; `prr`: the window in a recovery; `spurious`: a recovery for nothing;
//! 4. `subflow`: all of these as one subflow.

pub mod acks;
pub mod prr;
pub mod rack;
pub mod rate;
pub mod receiver;
pub mod receiver_rtt;
pub mod scoreboard;
pub mod spurious;
pub mod subflow;
pub mod tail_probe;
