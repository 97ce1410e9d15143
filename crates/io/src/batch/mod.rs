//! Batched datagram I/O: many datagrams per system call, with reused buffers.

#![allow(unsafe_code, reason = "recvmmsg and sendmmsg work on arrays of pointers")]

mod inbox;
mod outbox;

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::Socket;

pub use inbox::Inbox;
pub use outbox::Outbox;

/// Maximum slots filled by one system call.
pub const BATCH: usize = 32;
/// Slot size in bytes: no UDP datagram is larger.
pub const SLOT: usize = 1 << 16;
/// Size of a socket buffer in bytes, per direction: one second at 67 Mbit/s in packets of 1500 bytes,
/// including the kernel's overhead for each.
pub const BUFFER: usize = 16 << 20;

/// Enlarges both socket buffers, beyond the system's limits if permitted.
///
/// # Errors
/// The kernel refuses.
pub fn widen(socket: &Socket) -> io::Result<()> {
    set_buffers(socket, BUFFER)
}

/// Sets the size of both socket buffers, beyond the system's limits if permitted.
///
/// # Errors
/// The kernel refuses.
pub fn set_buffers(socket: &Socket, bytes: usize) -> io::Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        socket.set_recv_buffer_size(bytes)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &bytes).is_err() {
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(())
}

/// Enables kernel receive timestamps, for [`Inbox::datagrams`].
///
/// # Errors
/// The kernel refuses.
pub fn stamp_arrivals(socket: &impl AsFd) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Enables UDP GRO where supported (Linux 5.0): the kernel joins datagrams of one length and sender, so that
/// a slot of an [`Inbox`] holds a run of them.
pub fn join_arrivals(socket: &impl AsFd) {
    set_int(socket, libc::SOL_UDP, libc::UDP_GRO, 1).ok();
}

/// Buffer for control messages (a few of an `int` or a time), aligned as `cmsghdr`.
type Control = [u64; 8];

/// Sets a socket option of type `int`.
///
/// # Errors
/// The kernel refuses.
pub fn set_int(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value is an int that outlives the call, and its size is passed.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket option of type `int`.
///
/// # Errors
/// The kernel refuses.
pub fn get_int(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = -1;
    let mut size = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is an int, and its size is passed; both outlive the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    if answer == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Numbers that `SO_MEMINFO` gives; the last one is that of dropped datagrams (`SK_MEMINFO_DROPS`,
/// `linux/sock_diag.h`).
const MEMINFO: usize = 9;

/// Returns the number of datagrams that the kernel has dropped since a socket was opened because its receive buffer was
/// full; zero where the kernel does not say (before Linux 4.12).
pub fn overflowed(socket: &impl AsFd) -> u32 {
    let mut numbers = [0_u32; MEMINFO];
    let mut size = mem::size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the numbers are valid for writes of the size that is passed; both outlive the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let [.., drops] = numbers;
    if answer == 0 { drops } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Instant;
    use std::net::UdpSocket;

    fn pair(v6: bool) -> [UdpSocket; 2] {
        [(); 2].map(|()| {
            let socket = UdpSocket::bind(if v6 { "[::1]:0" } else { "127.0.0.1:0" }).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
    }

    #[test]
    fn a_batch_arrives_in_order_with_its_source() {
        for v6 in [false, true] {
            let [near, far] = pair(v6);
            let (mut inbox, mut outbox) = (Inbox::default(), Outbox::default());
            for number in 0..100_u8 {
                outbox.copy_in(&[number; 40], far.local_addr().unwrap());
            }
            assert_eq!(outbox.send_counting(&near), 0);
            assert!(outbox.is_empty());
            let mut seen = 0..100_u8;
            while !seen.is_empty() {
                let taken = inbox.take(&far).unwrap();
                for datagram in inbox.datagrams(taken) {
                    assert_eq!(*datagram.bytes, [seen.next().unwrap(); 40]);
                    assert_eq!(datagram.source, near.local_addr().ok());
                }
            }
            assert_eq!(inbox.take(&far).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn runs_are_joined_and_split_with_their_stamps_and_sources() {
        for v6 in [false, true] {
            let [near, far] = pair(v6);
            stamp_arrivals(&far).unwrap();
            join_arrivals(&far);
            std::thread::sleep(std::time::Duration::from_millis(100));
            let (mut inbox, mut outbox) = (Inbox::default(), Outbox::default());
            let lengths = [40; 25].into_iter().chain([17, 900, 900, 0, 0, 1]).collect::<Vec<_>>();
            for length in &lengths {
                let to = far.local_addr().unwrap();
                outbox.swap_in(&mut vec![*length as u8; *length], to, 46 << 2, 0);
            }
            assert_eq!(outbox.send_counting(&near), 0);
            let taken = inbox.take(&far).unwrap();
            assert_eq!(taken, 5);
            let seen: Vec<usize> = inbox
                .datagrams(taken)
                .map(|datagram| {
                    assert!(datagram.bytes.iter().all(|byte| *byte == datagram.bytes.len() as u8));
                    assert_eq!(datagram.source, near.local_addr().ok());
                    assert!(datagram.stamp.is_some());
                    datagram.bytes.len()
                })
                .collect();
            assert_eq!(seen, lengths);
        }
    }

    #[test]
    fn stamps_say_when_the_kernel_received_each_datagram() {
        let clock = crate::clock::Clock::starting_now();
        let pairs = [false, true].map(pair);
        pairs.iter().for_each(|[_, far]| stamp_arrivals(far).unwrap());
        // The kernel starts timestamping shortly after the first socket has requested it.
        std::thread::sleep(std::time::Duration::from_millis(100));
        for [near, far] in pairs {
            let mut inbox = Inbox::default();
            let mut bounds = Vec::new();
            for number in 0..3_u8 {
                let before = clock.now();
                near.send_to(&[number], far.local_addr().unwrap()).unwrap();
                bounds.push((before, clock.now()));
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let taken = inbox.take(&far).unwrap();
            let offset = clock.from_realtime_ns();
            for (datagram, (before, after)) in inbox.datagrams(taken).zip(bounds) {
                let at = Instant::from_nanos(datagram.stamp.unwrap() + offset);
                let slack = skybraid_units::Duration::from_micros(500);
                assert!(at >= before - slack && at <= after + slack, "{before} {at} {after}");
            }
            assert_eq!(taken, 3);
        }
    }

    #[test]
    fn what_is_too_old_does_not_leave() {
        let [near, far] = pair(false);
        let (mut outbox, to) = (Outbox::default(), far.local_addr().unwrap());
        for number in 0..4_u8 {
            outbox.copy_in(&[number], to);
            outbox.expire_last(Instant::from_millis(100 * i64::from(number)));
        }
        assert_eq!(outbox.drop_expired(Instant::from_millis(150)), 2);
        assert_eq!(outbox.send_counting(&near), 0);
        let mut inbox = Inbox::default();
        let taken = inbox.take(&far).unwrap();
        let left: Vec<u8> = inbox.datagrams(taken).map(|datagram| datagram.bytes[0]).collect();
        assert_eq!(left, [2, 3]);
    }

    #[test]
    fn a_datagram_that_cannot_leave_stops_none_behind_it() {
        let [near, far] = pair(false);
        let (mut outbox, to) = (Outbox::default(), far.local_addr().unwrap());
        outbox.copy_in(b"first", to);
        outbox.swap_in(&mut vec![0; 70_000], to, 0, 7);
        // Address of the other family.
        outbox.swap_in(&mut b"none".to_vec(), "[::1]:9".parse().unwrap(), 0, 8);
        outbox.copy_in(b"last", to);
        let mut failed = Vec::new();
        outbox.send(&near, &mut |mark, errno| failed.push((mark, errno)));
        assert_eq!(failed, [(7, libc::EMSGSIZE), (8, libc::EAFNOSUPPORT)]);
        let mut inbox = Inbox::default();
        assert_eq!(inbox.take(&far).unwrap(), 2);
        let texts: Vec<Vec<u8>> =
            inbox.datagrams(2).map(|datagram| datagram.bytes.to_vec()).collect();
        assert_eq!(texts, [b"first".to_vec(), b"last".to_vec()]);
    }

    #[test]
    fn the_traffic_class_is_on_the_packet() {
        for (v6, level, ask, kind) in [
            (false, libc::IPPROTO_IP, libc::IP_RECVTOS, libc::IP_TOS),
            (true, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, libc::IPV6_TCLASS),
        ] {
            let [near, far] = pair(v6);
            set_int(&far, level, ask, 1).unwrap();
            let mut outbox = Outbox::default();
            outbox.swap_in(&mut vec![1, 2, 3], far.local_addr().unwrap(), 46 << 2, 0);
            assert_eq!(outbox.send_counting(&near), 0);
            let mut bytes = [0_u8; 8];
            let mut control: Control = [0; 8];
            // SAFETY: all zeros are null pointers and lengths of zero; then they point to the arrays, which
            // outlive the call, and only the control message that the kernel wrote is read.
            let (found, value) = unsafe {
                let mut part =
                    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
                let mut header: libc::msghdr = mem::zeroed();
                header.msg_iov = &raw mut part;
                header.msg_iovlen = 1;
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = mem::size_of_val(&control) as _;
                assert_eq!(libc::recvmsg(far.as_raw_fd(), &raw mut header, 0), 3);
                let message = libc::CMSG_FIRSTHDR(&raw const header);
                assert!(!message.is_null());
                ((*message).cmsg_type, libc::CMSG_DATA(message).read())
            };
            assert_eq!((found, value), (kind, 46 << 2));
        }
    }

    #[test]
    fn datagrams_that_nobody_reads_in_time_are_counted() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_int(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 4_096).unwrap();
        assert_eq!(overflowed(&socket), 0);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[7; 1_000], socket.local_addr().unwrap()).unwrap();
        }
        socket.set_nonblocking(true).unwrap();
        let read = std::iter::from_fn(|| socket.recv(&mut [0; 1_000]).ok()).count();
        assert_eq!(read + overflowed(&socket) as usize, 100);
        assert!(read < 100);
    }
}
