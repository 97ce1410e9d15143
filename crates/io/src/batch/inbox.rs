//! Incoming datagrams.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use super::{BATCH, Control, SLOT};

/// Receive buffers for a batch of datagrams.
pub struct Inbox {
    bytes: Vec<u8>,
    sources: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    received: [Received; BATCH],
}

/// The kernel's description of a filled slot.
#[derive(Clone, Copy, Default)]
struct Received {
    length: usize,
    /// Arrival in nanoseconds of `CLOCK_REALTIME`; zero where the kernel does not say.
    stamp: i64,
    /// Length of each datagram but the last if the slot holds a run of datagrams; zero if it holds one.
    segment: usize,
}

/// A datagram received from a socket.
pub struct Datagram<'a> {
    /// Payload.
    pub bytes: &'a mut [u8],
    /// Sender of the datagram.
    pub source: Option<SocketAddr>,
    /// Arrival at the kernel in nanoseconds of `CLOCK_REALTIME`, where the socket asks for that.
    pub stamp: Option<i64>,
}

impl Default for Inbox {
    fn default() -> Self {
        // SAFETY: all zeros is an address of no family.
        let nowhere: libc::sockaddr_storage = unsafe { mem::zeroed() };
        // The kernel allocates the pages of the slots only as far as datagrams fill them.
        Self {
            bytes: vec![0; BATCH * SLOT],
            sources: vec![nowhere; BATCH],
            controls: vec![[0; 8]; BATCH],
            received: [Received::default(); BATCH],
        }
    }
}

impl Inbox {
    /// Fills up to [`BATCH`] slots from a socket without blocking and returns their number. A slot holds one
    /// datagram, or a run of datagrams joined by the kernel ([`join_arrivals`](super::join_arrivals)).
    pub fn take(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        // SAFETY: all zeros are null pointers and lengths of zero, which are valid in both types.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut heads: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let slots =
            self.bytes.chunks_exact_mut(SLOT).zip(&mut self.sources).zip(&mut self.controls);
        let mut count = 0;
        for ((part, head), ((slot, source), control)) in parts.iter_mut().zip(&mut heads).zip(slots)
        {
            head.msg_hdr.msg_control = control.as_mut_ptr().cast();
            head.msg_hdr.msg_controllen = mem::size_of_val(control) as _;
            part.iov_base = slot.as_mut_ptr().cast();
            part.iov_len = slot.len();
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
            head.msg_hdr.msg_name = (&raw mut *source).cast();
            head.msg_hdr.msg_namelen = mem::size_of_val(source) as libc::socklen_t;
            count += 1;
        }
        // SAFETY: each of the `count` headers points to one element of `parts`, which points to its own slot
        // in `bytes`, its own address in `sources` and its own buffer in `controls`, whose sizes are passed;
        // all of them outlive the call and nothing else uses them meanwhile.
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
        for (received, head) in self.received.iter_mut().zip(&heads).take(taken) {
            *received = Received { length: head.msg_len as usize, stamp: 0, segment: 0 };
            received.read_controls(&head.msg_hdr);
        }
        Ok(taken)
    }

    /// Returns the datagrams of the first `taken` slots, with source addresses and kernel timestamps.
    pub fn datagrams(&mut self, taken: usize) -> impl Iterator<Item = Datagram<'_>> {
        let slots = self.bytes.chunks_exact_mut(SLOT).zip(&self.received).zip(&self.sources);
        slots.take(taken).flat_map(|((slot, received), source)| {
            let bytes = slot.get_mut(..received.length).unwrap_or_default();
            let (source, stamp) = (address(source), Some(received.stamp).filter(|at| *at > 0));
            split(bytes, received.segment).map(move |bytes| Datagram { bytes, source, stamp })
        })
    }
}

/// Splits a run into datagrams of `segment` bytes (the last may be shorter); returns one if `segment` is
/// zero.
fn split(bytes: &mut [u8], segment: usize) -> impl Iterator<Item = &mut [u8]> {
    let segment = if segment == 0 { bytes.len().max(1) } else { segment };
    // An empty datagram counts, too.
    let empty: Option<&mut [u8]> = if bytes.is_empty() { Some(&mut []) } else { None };
    bytes.chunks_mut(segment).chain(empty)
}

impl Received {
    /// Reads the timestamp and the segment length from the control messages of a datagram.
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "C libraries and machines differ in these types"
    )]
    fn read_controls(&mut self, header: &libc::msghdr) {
        // SAFETY: CMSG_LEN computes a length and reads no memory.
        let lengths = unsafe {
            [
                libc::CMSG_LEN(mem::size_of::<libc::timespec>() as u32),
                libc::CMSG_LEN(mem::size_of::<libc::c_int>() as u32),
            ]
        };
        // SAFETY: the kernel has written `msg_controllen` bytes of control messages to the buffer that
        // `msg_control` points to; the macros stay within it, and the data of a message are a `timespec` or
        // an `int`, of any alignment, if its type says so and its length suffices.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            while let Some(found) = message.as_ref() {
                let length = found.cmsg_len as u32;
                match (found.cmsg_level, found.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if length == lengths[0] => {
                        let time = libc::CMSG_DATA(message).cast::<libc::timespec>();
                        let time = time.read_unaligned();
                        self.stamp =
                            i64::from(time.tv_sec) * 1_000_000_000 + i64::from(time.tv_nsec);
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) if length == lengths[1] => {
                        let size = libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned();
                        self.segment = usize::try_from(size).unwrap_or(0);
                    }
                    _ => {}
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
    }
}

/// Returns the address that the kernel has written.
fn address(from: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let pointer = &raw const *from;
    match i32::from(from.ss_family) {
        libc::AF_INET => {
            // SAFETY: `sockaddr_storage` is as large as any address and aligned for each; the family
            // identifies the type of the bytes.
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
