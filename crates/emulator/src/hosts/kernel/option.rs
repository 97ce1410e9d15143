//! Socket options without a safe wrapper.
#![allow(unsafe_code, reason = "getsockopt and setsockopt are bare system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads a socket option of variable size. Returns the number of bytes.
///
/// # Errors
/// Error of the kernel.
///
/// # Safety
/// If the option's value contains pointers, the kernel may write through them.
pub unsafe fn get(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(bytes.len()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and `bytes` and `length` outlive the call; the kernel writes no more
    // than `length` bytes there. The caller is responsible for pointers in `bytes`.
    let result = unsafe {
        let value = bytes.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut length)
    };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// Enables kernel pacing of a TCP socket at the rate that TCP determines: any limit on the pacing rate
/// enables pacing, and this one is never reached.
///
/// # Errors
/// Error of the kernel.
pub fn switch_pacing_on(socket: BorrowedFd<'_>) -> io::Result<()> {
    let bound = (u64::MAX - 1).to_ne_bytes();
    // SAFETY: the descriptor is open, and the option is read from an array of the given length.
    let result = unsafe {
        let (value, length) = (bound.as_ptr().cast(), bound.len() as libc::socklen_t);
        let option = libc::SO_MAX_PACING_RATE;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
