//! Packet socket on an interface, read and written in batches.

#![allow(unsafe_code, reason = "recvmmsg and sendmmsg work on arrays of pointers")]

use std::ffi::CStr;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{from_mut, from_ref, null_mut};

use skybraid_units::Instant;

use super::frames::Frames;
use crate::testbed::has_carrier;

/// Maximum frames per system call.
pub(super) const BATCH: usize = 64;
/// Socket buffer for received frames: a third of a second at 100 000 small packets per second.
const BUFFER: libc::c_int = 32 << 20;

/// A packet socket that receives every frame arriving on its interface.
pub(super) struct Port {
    socket: OwnedFd,
    name: String,
    /// MTU of the interface in bytes.
    pub mtu: usize,
    /// Lower bound of the arrival time of unread frames.
    pub read_until: Instant,
    /// Time at which the last read began, if it has left no frame unread.
    pub emptied: Option<Instant>,
}

impl Port {
    /// Opens the interface with this index in the namespace of the calling thread.
    pub fn open(interface: u32) -> io::Result<Self> {
        let (name, mtu) = describe(interface)?;
        let failed = |what: &str, error: io::Error| {
            let text = format!("{what} a packet socket on `{name}`: {error}");
            io::Error::new(error.kind(), text)
        };
        let all = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Nothing arrives before the socket is bound.
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(failed("cannot open (it takes CAP_NET_RAW)", error));
        }
        // SAFETY: `fd` was just opened and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let set = |level, name, value: libc::c_int| set_option(fd, level, name, value);
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
            .and_then(|()| set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1))
            .and_then(|()| set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1))
            .map_err(|error| failed("cannot set up", error))?;
        for (forced, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Without the capability to exceed the system's limit, the limit applies, which is not an error.
            if set(libc::SOL_SOCKET, forced, BUFFER).is_err() {
                set(libc::SOL_SOCKET, plain, BUFFER).ok();
            }
        }
        // SAFETY: all zeros are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = interface as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer is to a `sockaddr_ll` of this length, which outlives the call.
        if unsafe { libc::bind(fd, from_ref(&address).cast(), length) } < 0 {
            return Err(failed("cannot bind", io::Error::last_os_error()));
        }
        Ok(Self { socket, name, mtu, read_until: Instant::from_nanos(i64::MIN), emptied: None })
    }

    /// Returns the descriptor for polling.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Returns true if the interface and its peer exist and are up.
    pub fn is_connected(&self) -> bool {
        has_carrier(&self.socket, &self.name)
    }

    /// Returns the number of frames dropped by the kernel since the last call because they were not read in
    /// time.
    pub fn take_drops(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: both pointers are to values that outlive the call; `length` is the size of the first.
        let failed = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                from_mut(&mut statistics).cast(),
                &mut length,
            )
        };
        if failed < 0 { 0 } else { u64::from(statistics.tp_drops) }
    }
}

fn set_option(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to an integer of this length, which outlives the call.
    let failed = unsafe { libc::setsockopt(fd, level, name, from_ref(&value).cast(), length) };
    if failed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns name and MTU of an interface.
fn describe(interface: u32) -> io::Result<(String, usize)> {
    let unknown = |error: io::Error| {
        io::Error::new(error.kind(), format!("no interface with index {interface}: {error}"))
    };
    // SAFETY: all zeros are a valid request.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // SAFETY: the buffer has the IF_NAMESIZE bytes that the call may write.
    if unsafe { libc::if_indextoname(interface, request.ifr_name.as_mut_ptr()) }.is_null() {
        return Err(unknown(io::Error::last_os_error()));
    }
    // SAFETY: the call has written a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) }.to_string_lossy().into_owned();
    // SAFETY: no pointers are involved.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(unknown(io::Error::last_os_error()));
    }
    // SAFETY: `fd` was just opened and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the request holds the interface's name and outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) } < 0 {
        return Err(unknown(io::Error::last_os_error()));
    }
    // SAFETY: SIOCGIFMTU fills in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok((name, mtu.max(0) as usize))
}

/// Buffer for the one control message that is requested: a timestamp.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

/// A received frame.
#[derive(Clone, Copy)]
pub(super) struct Received {
    /// Slot of the frame.
    pub slot: u32,
    /// Length of the frame, truncated to the slot.
    pub length: u32,
    /// The frame was longer than the slot.
    pub cut_off: bool,
    /// Receive time in ns of `CLOCK_REALTIME`; 0 if not reported.
    pub stamp_ns: i64,
}

impl Received {
    /// Returns the arrival time: the timestamp, converted by `offset_ns` (lead over `CLOCK_REALTIME`), but
    /// not before `earliest` and not after `now`. A timestamp is outside these bounds if the wall clock was
    /// set meanwhile.
    pub fn arrival(&self, offset_ns: i64, earliest: Instant, now: Instant) -> Instant {
        let stamped = Instant::from_nanos(self.stamp_ns.saturating_add(offset_ns));
        stamped.min(now).max(earliest)
    }
}

/// Arrays for batched system calls. They point to one another and into [`Frames`], and are allocated on the
/// heap so that they do not move.
struct Arrays {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    controls: Box<[Control]>,
}

// SAFETY: the pointers point to memory that the struct owns, or are set again before each call.
unsafe impl Send for Arrays {}

impl Arrays {
    fn new(with_control: bool) -> Self {
        let nothing = libc::iovec { iov_base: null_mut(), iov_len: 0 };
        let mut arrays = Self {
            // SAFETY: all zeros are a valid header.
            headers: vec![unsafe { zeroed() }; BATCH].into_boxed_slice(),
            vectors: vec![nothing; BATCH].into_boxed_slice(),
            controls: vec![Control([0; 64]); BATCH].into_boxed_slice(),
        };
        let parts = arrays.headers.iter_mut().zip(&mut arrays.vectors).zip(&mut arrays.controls);
        for ((header, vector), control) in parts {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            if with_control {
                header.msg_hdr.msg_control = from_mut(control).cast();
                header.msg_hdr.msg_controllen = size_of::<Control>() as _;
            }
        }
        arrays
    }
}

/// Reads frames into slots.
pub(super) struct Receiver {
    arrays: Arrays,
    slots: [u32; BATCH],
}

impl Receiver {
    /// Creates a receiver with slots of `frames`.
    pub fn new(frames: &mut Frames) -> Self {
        let mut receiver = Self { arrays: Arrays::new(true), slots: [0; BATCH] };
        for index in 0..BATCH {
            receiver.renew(index, frames);
        }
        receiver
    }

    /// Replaces a used slot with a free one.
    fn renew(&mut self, index: usize, frames: &mut Frames) {
        let slot = frames.take();
        if let (Some(place), Some(vector)) =
            (self.slots.get_mut(index), self.arrays.vectors.get_mut(index))
        {
            let room = frames.slot(slot);
            *place = slot;
            vector.iov_base = room.as_mut_ptr().cast();
            vector.iov_len = room.len();
        }
    }

    /// Receives up to [`BATCH`] waiting frames from `port` and passes each to `take`.
    pub fn receive(
        &mut self,
        port: &Port,
        frames: &mut Frames,
        mut take: impl FnMut(Received),
    ) -> usize {
        // SAFETY: every header points to its own vector and control buffer, and every vector to a whole slot
        // that nobody else uses until it is passed on below.
        let count = unsafe {
            let headers = self.arrays.headers.as_mut_ptr();
            libc::recvmmsg(port.fd(), headers, BATCH as u32, 0, null_mut())
        };
        // Nothing to read, or the interface is down, which sending will report.
        let count = usize::try_from(count).unwrap_or_default();
        for index in 0..count {
            let (Some(header), Some(slot)) =
                (self.arrays.headers.get_mut(index), self.slots.get(index))
            else {
                break;
            };
            take(Received {
                slot: *slot,
                length: header.msg_len,
                cut_off: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                stamp_ns: stamp(&header.msg_hdr),
            });
            header.msg_hdr.msg_controllen = size_of::<Control>() as _;
            self.renew(index, frames);
        }
        count
    }
}

/// Returns the timestamp in ns; 0 if missing.
fn stamp(header: &libc::msghdr) -> i64 {
    // SAFETY: the header's control buffer and its length are as the kernel left them.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return 0;
    }
    // SAFETY: `message` is inside the control buffer, with a complete header.
    let found = unsafe { *message };
    if (found.cmsg_level, found.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
        return 0;
    }
    // SAFETY: a message of this type holds a `timespec`.
    let time: libc::timespec =
        unsafe { libc::CMSG_DATA(message).cast::<libc::timespec>().read_unaligned() };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Sends frames from their slots.
pub(super) struct Sender {
    arrays: Arrays,
}

impl Sender {
    /// Creates an empty sender.
    pub fn new() -> Self {
        Self { arrays: Arrays::new(false) }
    }

    /// Sends up to [`BATCH`] frames (slot, length) in order. Returns the number sent, at least one.
    ///
    /// # Errors
    /// The first frame could not be sent.
    pub fn send(
        &mut self,
        port: &Port,
        frames: &mut Frames,
        batch: impl Iterator<Item = (u32, u32)>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (vector, (slot, length)) in self.arrays.vectors.iter_mut().zip(batch) {
            let bytes = frames.slot(slot);
            vector.iov_base = bytes.as_mut_ptr().cast();
            vector.iov_len = bytes.len().min(length as usize);
            count += 1;
        }
        // SAFETY: the first `count` headers point to vectors that were just set to slots, which are not
        // modified during the call.
        let sent = unsafe {
            libc::sendmmsg(
                port.fd(),
                self.arrays.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_the_wall_clock_moves_a_stamp_by_the_wait_at_most() {
        let (earliest, now) = (Instant::from_millis(1000), Instant::from_millis(1003));
        let wall_ns = 1_700_000_000_000_000_000;
        let hour_ns = 3_600_000_000_000;
        let came_ns = Instant::from_millis(1002).as_nanos();
        let stamp_ns = wall_ns + came_ns;
        let frame = Received { slot: 0, length: 60, cut_off: false, stamp_ns };
        // Step of the wall clock between the timestamp and the reading.
        for (step_ns, expected) in [(0, 1002), (hour_ns, 1000), (-hour_ns, 1003)] {
            let offset_ns = -wall_ns - step_ns;
            assert_eq!(frame.arrival(offset_ns, earliest, now), Instant::from_millis(expected));
        }
        let unstamped = Received { stamp_ns: 0, ..frame };
        assert_eq!(unstamped.arrival(-wall_ns, earliest, now), earliest);
    }
}
