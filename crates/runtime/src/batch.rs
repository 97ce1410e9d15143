//! Datagrams in batches: many in one system call, into and out of memory that is used again and again.

#![allow(unsafe_code, reason = "recvmmsg and sendmmsg work on arrays of pointers")]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{SockAddr, Socket};

/// Datagrams that are taken or sent in one system call.
pub(crate) const BATCH: usize = 32;
/// Bytes for each that is taken: no UDP datagram is larger.
pub(crate) const SLOT: usize = 1 << 16;
/// Bytes that a socket may hold in each direction: a second at 67 Mbit/s in packets of 1500 bytes,
/// each of which the kernel counts with its overhead.
const BUFFER: usize = 16 << 20;

/// Enlarges both buffers of a socket, beyond the system's limits where that is allowed.
pub(crate) fn widen(socket: &Socket) -> io::Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        socket.set_recv_buffer_size(BUFFER)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &BUFFER).is_err() {
        socket.set_send_buffer_size(BUFFER)?;
    }
    Ok(())
}

/// Sets an option whose value is an `int`.
pub(crate) fn set_int(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value is an int that lives through the call, and its size is told.
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

/// Reads an option whose value is an `int`.
#[cfg(test)]
pub(crate) fn get_int(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = -1;
    let mut size = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is an int, as the size says; both outlive the call.
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

/// Room for a batch of datagrams that arrive.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    lengths: [usize; BATCH],
    sources: Vec<libc::sockaddr_storage>,
}

impl Inbox {
    /// Empty room.
    pub fn new() -> Self {
        // SAFETY: all zeros is an address of no family.
        let nowhere: libc::sockaddr_storage = unsafe { mem::zeroed() };
        // The pages of the slots are taken from the kernel only as far as datagrams fill them.
        Self { bytes: vec![0; BATCH * SLOT], lengths: [0; BATCH], sources: vec![nowhere; BATCH] }
    }

    /// Takes up to [`BATCH`] datagrams from a socket, without waiting, and tells how many.
    pub fn take(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        // SAFETY: all zeros are null pointers and lengths of zero, which are valid in both types.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut heads: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let slots = self.bytes.chunks_exact_mut(SLOT).zip(&mut self.sources);
        let mut count = 0;
        for ((part, head), (slot, source)) in parts.iter_mut().zip(&mut heads).zip(slots) {
            part.iov_base = slot.as_mut_ptr().cast();
            part.iov_len = slot.len();
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
            head.msg_hdr.msg_name = (&raw mut *source).cast();
            head.msg_hdr.msg_namelen = mem::size_of_val(source) as libc::socklen_t;
            count += 1;
        }
        // SAFETY: each of the `count` headers points to one element of `parts`, which points to a slot
        // of its own in `bytes`, and to an address of its own in `sources`, whose sizes are told; all of
        // them outlive the call and nothing else uses them meanwhile.
        let taken = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                heads.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let taken = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
        for (length, head) in self.lengths.iter_mut().zip(&heads).take(taken) {
            *length = head.msg_len as usize;
        }
        Ok(taken)
    }

    /// The first `taken` datagrams, with where they came from.
    pub fn datagrams(
        &mut self,
        taken: usize,
    ) -> impl Iterator<Item = (&mut [u8], Option<SocketAddr>)> {
        let slots = self.bytes.chunks_exact_mut(SLOT).zip(&self.lengths).zip(&self.sources);
        slots.take(taken).map(|((slot, length), source)| {
            (slot.get_mut(..*length).unwrap_or_default(), address(source))
        })
    }
}

/// The address that the kernel has written.
fn address(from: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let pointer = &raw const *from;
    match i32::from(from.ss_family) {
        libc::AF_INET => {
            // SAFETY: `sockaddr_storage` is as large as any address and aligned for each; the family
            // tells that the bytes are of this type.
            let v4 = unsafe { &*pointer.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*pointer.cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Datagrams that are about to leave by one socket.
#[derive(Default)]
pub(crate) struct Outbox {
    slots: Vec<Slot>,
    /// Buffers to be written over.
    spare: Vec<Vec<u8>>,
}

struct Slot {
    bytes: Vec<u8>,
    to: SockAddr,
    /// It leaves as IPv4, perhaps to an address of IPv6 that stands for one of IPv4.
    ipv4: bool,
    /// The sender's own mark.
    mark: u8,
    /// The octet with the DSCP in its upper six bits.
    traffic_class: u8,
}

impl Outbox {
    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// As many wait as leave in one system call.
    pub fn is_full(&self) -> bool {
        self.slots.len() >= BATCH
    }

    /// Puts a datagram in; `bytes` gets some other buffer in exchange, to be written over. Who is told
    /// that it could not leave gets the mark.
    pub fn swap_in(&mut self, bytes: &mut Vec<u8>, to: SocketAddr, traffic_class: u8, mark: u8) {
        let mut room = self.spare.pop().unwrap_or_default();
        mem::swap(&mut room, bytes);
        self.put(room, to, traffic_class, mark);
    }

    /// Puts a copy of a datagram in.
    pub fn copy_in(&mut self, bytes: &[u8], to: SocketAddr) {
        let mut room = self.spare.pop().unwrap_or_default();
        room.clear();
        room.extend_from_slice(bytes);
        self.put(room, to, 0, 0);
    }

    fn put(&mut self, bytes: Vec<u8>, to: SocketAddr, traffic_class: u8, mark: u8) {
        let ipv4 = match to {
            SocketAddr::V4(_) => true,
            SocketAddr::V6(v6) => v6.ip().to_ipv4_mapped().is_some(),
        };
        self.slots.push(Slot { bytes, to: to.into(), ipv4, mark, traffic_class });
    }

    /// Forgets all that waits, and tells how many that were.
    pub fn clear(&mut self) -> u64 {
        let waiting = self.slots.len() as u64;
        self.spare.extend(self.slots.drain(..).map(|slot| slot.bytes));
        waiting
    }

    /// Sends all that waits, without waiting. What cannot leave now is lost: `failed` gets its mark and
    /// the error's number.
    pub fn send(&mut self, socket: &impl AsFd, failed: &mut dyn FnMut(u8, i32)) {
        let mut rest = self.slots.as_mut_slice();
        while let Some(mark) = rest.first().map(|slot| slot.mark) {
            match send_some(socket, rest) {
                Ok(sent) => rest = rest.get_mut(sent.max(1)..).unwrap_or_default(),
                Err(libc::EINTR) => {}
                Err(errno) => {
                    // The first of them is at fault.
                    rest = rest.get_mut(1..).unwrap_or_default();
                    failed(mark, errno);
                }
            }
        }
        self.clear();
    }

    /// Sends all that waits, and tells how many could not leave.
    pub fn send_counting(&mut self, socket: &impl AsFd) -> u64 {
        let mut failed = 0;
        self.send(socket, &mut |_, _| failed += 1);
        failed
    }
}

/// Room for one control message with an `int`; its alignment is that of `cmsghdr`.
type Control = [u64; 4];

/// Sends up to [`BATCH`] datagrams and tells how many have left, or why the first has not.
fn send_some(socket: &impl AsFd, slots: &mut [Slot]) -> Result<usize, i32> {
    // SAFETY: all zeros are null pointers and lengths of zero, which are valid in both types.
    let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut heads: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
    let mut controls: [Control; BATCH] = [[0; 4]; BATCH];
    let room = parts.iter_mut().zip(&mut heads).zip(&mut controls);
    let mut count = 0;
    for (slot, ((part, head), control)) in slots.iter_mut().zip(room) {
        part.iov_base = slot.bytes.as_mut_ptr().cast();
        part.iov_len = slot.bytes.len();
        let header = &mut head.msg_hdr;
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_name = slot.to.as_ptr().cast_mut().cast();
        header.msg_namelen = slot.to.len();
        if slot.traffic_class != 0 {
            let (level, kind) = match slot.ipv4 {
                true => (libc::IPPROTO_IP, libc::IP_TOS),
                false => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            header.msg_control = control.as_mut_ptr().cast();
            // SAFETY: `msg_control` points to room for a header and an int, in this alignment, as
            // CMSG_SPACE says; the header and the int are written within it.
            unsafe {
                let size = mem::size_of::<libc::c_int>() as u32;
                header.msg_controllen = libc::CMSG_SPACE(size) as _;
                let message = libc::CMSG_FIRSTHDR(header);
                (*message).cmsg_level = level;
                (*message).cmsg_type = kind;
                (*message).cmsg_len = libc::CMSG_LEN(size) as _;
                let value = libc::c_int::from(slot.traffic_class);
                libc::CMSG_DATA(message).cast::<libc::c_int>().write_unaligned(value);
            }
        }
        count += 1;
    }
    // SAFETY: each of the `count` headers points to one element of `parts`, which points to the bytes of
    // a slot, to that slot's address and to a control message of its own; all of them outlive the call.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            heads.as_mut_ptr(),
            count,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let (mut inbox, mut outbox) = (Inbox::new(), Outbox::default());
            for number in 0..100_u8 {
                outbox.copy_in(&[number; 40], far.local_addr().unwrap());
            }
            assert_eq!(outbox.send_counting(&near), 0);
            assert!(outbox.is_empty());
            let mut seen = 0..100_u8;
            while !seen.is_empty() {
                let taken = inbox.take(&far).unwrap();
                for (bytes, source) in inbox.datagrams(taken) {
                    assert_eq!(*bytes, [seen.next().unwrap(); 40]);
                    assert_eq!(source, near.local_addr().ok());
                }
            }
            assert_eq!(inbox.take(&far).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_datagram_that_cannot_leave_stops_none_behind_it() {
        let [near, far] = pair(false);
        let (mut outbox, to) = (Outbox::default(), far.local_addr().unwrap());
        outbox.copy_in(b"first", to);
        outbox.swap_in(&mut vec![0; 70_000], to, 0, 7);
        // An address of the other family.
        outbox.swap_in(&mut b"none".to_vec(), "[::1]:9".parse().unwrap(), 0, 8);
        outbox.copy_in(b"last", to);
        let mut failed = Vec::new();
        outbox.send(&near, &mut |mark, errno| failed.push((mark, errno)));
        assert_eq!(failed, [(7, libc::EMSGSIZE), (8, libc::EAFNOSUPPORT)]);
        let mut inbox = Inbox::new();
        assert_eq!(inbox.take(&far).unwrap(), 2);
        let texts: Vec<Vec<u8>> = inbox.datagrams(2).map(|(bytes, _)| bytes.to_vec()).collect();
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
            let mut control: Control = [0; 4];
            // SAFETY: all zeros are null pointers and lengths of zero; then they point to the arrays,
            // which outlive the call, and the control message that the kernel wrote is read within.
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
}
