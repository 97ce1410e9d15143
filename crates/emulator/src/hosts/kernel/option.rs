//! Socket options that have no safe wrapper.
#![allow(unsafe_code, reason = "getsockopt and setsockopt are bare system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads a socket option of no fixed size. Answers how many bytes there are.
///
/// # Errors
/// What the kernel answers.
///
/// # Safety
/// Where the option's value holds pointers, the kernel may write through them.
pub unsafe fn get(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(bytes.len()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and `bytes` and `length` are valid for as long as the call takes;
    // the kernel writes no more than `length` bytes there. The caller answers for pointers in `bytes`.
    let result = unsafe {
        let value = bytes.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut length)
    };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel pace what a TCP socket sends, at the rate that TCP itself finds right: any bound on the
/// pacing rate switches pacing on, and this one is out of reach.
///
/// # Errors
/// What the kernel answers.
pub fn switch_pacing_on(socket: BorrowedFd<'_>) -> io::Result<()> {
    let bound = (u64::MAX - 1).to_ne_bytes();
    // SAFETY: the descriptor is open, and the option is read from an array of the length that is given.
    let result = unsafe {
        let (value, length) = (bound.as_ptr().cast(), bound.len() as libc::socklen_t);
        let option = libc::SO_MAX_PACING_RATE;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
