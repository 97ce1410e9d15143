//! The commands of `skybraid-node`, one file each.

pub mod check;
pub mod doctor;
pub mod error;
pub mod gateway;
pub mod keys;
pub mod status;
