//! Outgoing datagrams.
//!
//! Datagrams of one length to one address are sent as a run, which passes through the kernel as one packet
//! (UDP GSO, `UDP_SEGMENT` in udp(7)). If the kernel or the interface refuses that, they are sent one by one.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use skybraid_units::Instant;
use socket2::SockAddr;

use super::Control;

/// Maximum datagrams sent by one system call.
const MAX_WAITING: usize = 64;
/// Maximum datagrams of a run, and maximum bytes in total, that every kernel accepts.
const MAX_RUN: usize = 64;
const MAX_RUN_BYTES: usize = 65_000;

/// Datagrams queued for one socket.
#[derive(Default)]
pub struct Outbox {
    slots: Vec<Slot>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    /// Earliest expiry of the queued datagrams; `None` if none has an expiry.
    expires: Option<Instant>,
    /// Runs have been refused by the kernel.
    without_runs: bool,
}

struct Slot {
    bytes: Vec<u8>,
    to: SocketAddr,
    /// Mark chosen by the sender.
    mark: u8,
    /// Traffic class, with the DSCP in its upper six bits.
    traffic_class: u8,
    /// Time at which it is too old to be sent.
    expires: Instant,
}

impl Outbox {
    /// Returns whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns true if a full batch for one system call is queued.
    pub fn is_full(&self) -> bool {
        self.slots.len() >= MAX_WAITING
    }

    /// Queues a datagram, leaving another buffer for reuse in `bytes`. If the datagram cannot be sent, its
    /// mark is reported.
    pub fn swap_in(&mut self, bytes: &mut Vec<u8>, to: SocketAddr, traffic_class: u8, mark: u8) {
        let mut room = self.spare.pop().unwrap_or_default();
        mem::swap(&mut room, bytes);
        self.put(room, to, traffic_class, mark);
    }

    /// Sets the expiry of the datagram queued last to `expires`.
    pub fn expire_last(&mut self, expires: Instant) {
        if let Some(slot) = self.slots.last_mut() {
            slot.expires = expires;
            self.expires = Some(self.expires.map_or(expires, |first| first.min(expires)));
        }
    }

    /// Drops expired datagrams and returns their number.
    pub fn drop_expired(&mut self, now: Instant) -> u64 {
        if self.expires.is_none_or(|expires| now <= expires) {
            return 0;
        }
        let before = self.slots.len();
        self.slots.retain(|slot| now <= slot.expires);
        (before - self.slots.len()) as u64
    }

    /// Queues a copy of a datagram.
    pub fn copy_in(&mut self, bytes: &[u8], to: SocketAddr) {
        let mut room = self.spare.pop().unwrap_or_default();
        room.clear();
        room.extend_from_slice(bytes);
        self.put(room, to, 0, 0);
    }

    fn put(&mut self, bytes: Vec<u8>, to: SocketAddr, traffic_class: u8, mark: u8) {
        let expires = Instant::FAR_FUTURE;
        self.slots.push(Slot { bytes, to, mark, traffic_class, expires });
    }

    /// Drops all queued datagrams and returns their number.
    pub fn clear(&mut self) -> u64 {
        let waiting = self.slots.len() as u64;
        self.expires = None;
        self.spare.extend(self.slots.drain(..).map(|slot| slot.bytes));
        waiting
    }

    /// Sends all queued datagrams without blocking. A datagram that cannot be sent now is dropped: `failed`
    /// receives its mark and the errno.
    pub fn send(&mut self, socket: &impl AsFd, failed: &mut dyn FnMut(u8, i32)) {
        let mut rest = self.slots.as_mut_slice();
        // Datagrams of a refused run, which are sent one by one.
        let mut alone = 0;
        // The kernel or the interface may be the reason, and not the address.
        let mut doubts_runs = false;
        while let Some(mark) = rest.first().map(|slot| slot.mark) {
            let joins = !self.without_runs && alone == 0;
            let done = match send_some(socket, rest, joins) {
                Ok(sent) => {
                    self.without_runs |= doubts_runs && alone > 0;
                    doubts_runs = false;
                    sent.max(1)
                }
                Err(libc::EINTR) => 0,
                Err(errno) => {
                    let run = if joins { run(rest) } else { 1 };
                    if run > 1 {
                        // Kernels before 4.18, interfaces without checksum offload, tunnels.
                        doubts_runs = matches!(errno, libc::EIO | libc::EINVAL);
                        alone = run;
                        0
                    } else {
                        // The error concerns the first of the datagrams.
                        failed(mark, errno);
                        1
                    }
                }
            };
            alone = alone.saturating_sub(done);
            rest = rest.get_mut(done..).unwrap_or_default();
        }
        self.clear();
    }

    /// Sends all queued datagrams and returns the number that could not be sent.
    pub fn send_counting(&mut self, socket: &impl AsFd) -> u64 {
        let mut failed = 0;
        self.send(socket, &mut |_, _| failed += 1);
        failed
    }
}

/// Returns the number of leading datagrams that can be sent as one run: all of one length but the last, which
/// may be shorter.
fn run(slots: &[Slot]) -> usize {
    let Some((first, rest)) = slots.split_first() else { return 0 };
    let length = first.bytes.len();
    if length == 0 {
        return 1;
    }
    let max = (MAX_RUN_BYTES / length).clamp(1, MAX_RUN) - 1;
    let mut ended = false;
    let fits = |slot: &&Slot| {
        let fits = !ended
            && (1..=length).contains(&slot.bytes.len())
            && (slot.to, slot.traffic_class) == (first.to, first.traffic_class);
        ended = slot.bytes.len() < length;
        fits
    };
    1 + rest.iter().take(max).take_while(fits).count()
}

/// Sends up to [`MAX_WAITING`] datagrams, in runs if `joins`. Returns the number sent, or the errno of the
/// first.
#[allow(clippy::unnecessary_cast, reason = "C libraries differ in these types")]
fn send_some(socket: &impl AsFd, slots: &mut [Slot], joins: bool) -> Result<usize, i32> {
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_WAITING];
    let mut heads = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_WAITING];
    let mut names = [const { MaybeUninit::<SockAddr>::uninit() }; MAX_WAITING];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; MAX_WAITING];
    for (slot, part) in slots.iter_mut().zip(&mut parts) {
        let iov_base = slot.bytes.as_mut_ptr().cast();
        part.write(libc::iovec { iov_base, iov_len: slot.bytes.len() });
    }
    let mut rest = slots.get(..slots.len().min(MAX_WAITING)).unwrap_or(slots);
    let mut parts = parts.as_mut_slice();
    let mut count = 0;
    let room = heads.iter_mut().zip(&mut names).zip(&mut controls);
    for ((head, name), control) in room {
        let Some(first) = rest.first() else { break };
        let datagrams = if joins { run(rest) } else { 1 };
        let (run_parts, behind) = mem::take(&mut parts).split_at_mut(datagrams);
        // SAFETY: all zeros are null pointers and lengths of zero.
        let head = head.write(unsafe { mem::zeroed() });
        let name = name.write(first.to.into());
        let header = &mut head.msg_hdr;
        header.msg_iov = run_parts.as_mut_ptr().cast();
        header.msg_iovlen = datagrams as _;
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len();
        let mut controls = Controls { header, room: control.write([0; 8]) };
        if first.traffic_class != 0 {
            let value = libc::c_int::from(first.traffic_class);
            match leaves_as_ipv4(first.to) {
                true => controls.put(libc::IPPROTO_IP, libc::IP_TOS, value.to_ne_bytes()),
                false => controls.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, value.to_ne_bytes()),
            }
        }
        if datagrams > 1 {
            let length = first.bytes.len() as u16;
            controls.put(libc::SOL_UDP, libc::UDP_SEGMENT, length.to_ne_bytes());
        }
        rest = rest.get(datagrams..).unwrap_or_default();
        parts = behind;
        count += 1;
    }
    // A C library may implement this call as a loop of sendmsg, as musl does. SAFETY: each of the `count`
    // headers points to elements of `parts`, which point to the bytes of slots, to an address and to control
    // messages of its own; all of them outlive the call.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendmmsg,
            socket.as_fd().as_raw_fd(),
            heads.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    let sent = usize::try_from(sent)
        .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0))?;
    let length = |head: &MaybeUninit<libc::mmsghdr>| {
        // SAFETY: the first `count` headers have been written, and no more than `count` have been sent.
        let header = unsafe { head.assume_init_ref() };
        header.msg_hdr.msg_iovlen as usize
    };
    Ok(heads.iter().take(sent.min(count)).map(length).sum())
}

/// Returns true if a datagram to `to` is sent as IPv4, also if `to` is an IPv4-mapped IPv6 address.
fn leaves_as_ipv4(to: SocketAddr) -> bool {
    match to {
        SocketAddr::V4(_) => true,
        SocketAddr::V6(v6) => v6.ip().to_ipv4_mapped().is_some(),
    }
}

/// Writer of control messages.
struct Controls<'a> {
    header: &'a mut libc::msghdr,
    room: &'a mut Control,
}

impl Controls<'_> {
    #[allow(clippy::unnecessary_cast, reason = "C libraries differ in these types")]
    fn put<const N: usize>(&mut self, level: libc::c_int, kind: libc::c_int, value: [u8; N]) {
        let used = self.header.msg_controllen as usize;
        // SAFETY: CMSG_SPACE and CMSG_LEN compute lengths and read no memory.
        let (space, length) = unsafe { (libc::CMSG_SPACE(N as u32), libc::CMSG_LEN(N as u32)) };
        if used + space as usize > mem::size_of_val(self.room) {
            return;
        }
        let start = self.room.as_mut_ptr();
        // SAFETY: the buffer is zeroed, aligned for a message header, and has space for this message after
        // those that it holds, whose lengths are multiples of that alignment.
        unsafe {
            let message = start.byte_add(used).cast::<libc::cmsghdr>();
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = length as _;
            libc::CMSG_DATA(message).cast::<[u8; N]>().write_unaligned(value);
        }
        self.header.msg_control = start.cast();
        self.header.msg_controllen = (used + space as usize) as _;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Inbox;
    use std::net::UdpSocket;

    fn outbox(lengths: &[usize]) -> Outbox {
        let (mut outbox, to) = (Outbox::default(), "127.0.0.1:9".parse().unwrap());
        lengths.iter().for_each(|length| outbox.copy_in(&vec![0; *length], to));
        outbox
    }

    #[test]
    fn a_run_has_one_length_one_address_and_one_class() {
        assert_eq!(run(&outbox(&[9, 9, 9, 8, 9]).slots), 4);
        assert_eq!(run(&outbox(&[9, 10]).slots), 1);
        assert_eq!(run(&outbox(&[0, 0]).slots), 1);
        assert_eq!(run(&outbox(&[9, 0]).slots), 1);
        assert_eq!(run(&outbox(&[1200; 64]).slots), 54);
        assert_eq!(run(&outbox(&[65_507; 2]).slots), 1);
        let mut mixed = outbox(&[9; 4]);
        mixed.slots[2].traffic_class = 8;
        assert_eq!(run(&mixed.slots), 2);
        mixed.slots[1].to.set_port(10);
        assert_eq!(run(&mixed.slots), 1);
    }

    #[test]
    fn an_address_that_takes_nothing_does_not_end_runs() {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut outbox = Outbox::default();
        // A forged source port of zero.
        let nowhere = "127.0.0.1:0".parse().unwrap();
        for to in [nowhere, far.local_addr().unwrap()] {
            (0..3).for_each(|_| outbox.copy_in(&[7; 40], to));
        }
        assert_eq!(outbox.send_counting(&near), 3);
        assert!(!outbox.without_runs);
    }

    #[test]
    fn a_run_that_is_refused_leaves_one_by_one() {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        // Runs require checksums.
        crate::batch::set_int(&near, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let (mut inbox, mut outbox) = (Inbox::default(), Outbox::default());
        for number in 0..20_u8 {
            outbox.copy_in(&[number; 40], far.local_addr().unwrap());
        }
        assert_eq!(outbox.send_counting(&near), 0);
        assert!(outbox.without_runs);
        let taken = inbox.take(&far).unwrap();
        let seen: Vec<Vec<u8>> =
            inbox.datagrams(taken).map(|datagram| datagram.bytes.to_vec()).collect();
        assert_eq!(seen, (0..20).map(|number| vec![number; 40]).collect::<Vec<_>>());
    }
}
