//! Sessions between an aircraft and its ground station over networks that lose, delay, repeat and reorder,
//! with restarts, and with others who listen, forge and flood.

mod enemies;
mod faults;
mod field;
mod peers;
mod search;
mod vectors;
