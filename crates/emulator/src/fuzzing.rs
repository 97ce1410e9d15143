//! Entry point of the fuzz target `parsers`: every parser of this crate that reads external bytes.

use crate::control::request::Request;
use crate::forward::frame::shaped;
use crate::proxy::syn::Syn;

/// Number of parsers.
pub const PARSERS: u8 = 3;

/// Reads `bytes` with one of the parsers.
pub fn parse(parser: u8, bytes: &[u8]) {
    match parser % PARSERS {
        0 => drop(Request::read(bytes)),
        1 => drop(shaped(bytes)),
        _ => drop(Syn::read(bytes)),
    }
}
