//! State of a TCP or MPTCP connection, as reported by the kernel.
//!
//! Source: `struct tcp_info` of linux/tcp.h; `struct mptcp_info`, `mptcp_full_info`, `mptcp_subflow_data`,
//! `mptcp_subflow_addrs` of linux/mptcp.h. The structures grow at the end between versions; fields that an
//! older kernel does not report are zero.
#![allow(unsafe_code, reason = "an answer of the kernel holds pointers")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use skybraid_units::Duration;

use super::option::get;

const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const MPTCP_TCPINFO: libc::c_int = 2;
const MPTCP_SUBFLOW_ADDRS: libc::c_int = 3;
const MPTCP_FULL_INFO: libc::c_int = 4;
/// Bit of `mptcpi_flags`: the connection has fallen back to TCP.
const FALLBACK: u32 = 1;

/// Maximum subflows queried; the kernel's path manager opens no more than eight.
const SUBFLOWS: usize = 16;
/// Requested bytes of `struct tcp_info`.
const TCP_INFO_SIZE: usize = 248;
/// Requested bytes of `struct mptcp_info`.
const MPTCP_INFO_SIZE: usize = 104;
/// Size of `struct mptcp_subflow_addrs`: two socket addresses.
const ADDRESSES_SIZE: usize = 256;
/// Size of `struct mptcp_subflow_info`: a number, padding, the addresses.
const SUBFLOW_INFO_SIZE: usize = 8 + ADDRESSES_SIZE;
/// Size of `struct mptcp_full_info` before the `struct mptcp_info` at its end.
const FULL_INFO_SIZE: usize = 40;
/// Size of `struct mptcp_subflow_data`.
const SUBFLOW_DATA_SIZE: usize = 16;
/// `TCP_INFINITE_SSTHRESH`.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// State of a TCP connection or an MPTCP subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// State of loss recovery (`enum tcp_ca_state`): 0 open, 1 disorder, 2 window reduced, 3 recovery,
    /// 4 loss.
    pub recovery: u8,
    /// Maximum segment size: payload bytes of a full segment.
    pub segment: u32,
    /// Segments sent but not cumulatively acknowledged.
    pub unacked: u32,
    /// Segments among `unacked` that were selectively acknowledged.
    pub sacked: u32,
    /// Segments among `unacked` that are considered lost.
    pub lost: u32,
    /// Retransmitted segments among `unacked`.
    pub retransmitted: u32,
    /// Path MTU.
    pub path_mtu: u32,
    /// Smoothed round-trip time in µs; 0 before the first sample.
    pub srtt_us: u32,
    /// Deviation of the round-trip time in µs.
    pub rtt_deviation_us: u32,
    /// Slow start threshold in segments.
    pub threshold: u32,
    /// Congestion window in segments.
    pub window: u32,
    /// Segments retransmitted since the start.
    pub total_retransmitted: u32,
    /// Pacing rate in B/s; the maximum value if not paced.
    pub pacing: u64,
    /// Bytes acknowledged since the start; the SYN and the FIN count as one each.
    pub acked_bytes: u64,
    /// Segments with payload sent since the start, including retransmissions.
    pub data_segments: u32,
    /// Time in µs during which sending was limited by the peer's window.
    pub window_blocked_us: u64,
    /// Receive window advertised by the peer, in bytes.
    pub peer_window: u32,
}

impl TcpInfo {
    /// Parses the kernel's structure, or the available part of it.
    pub fn parse(bytes: &[u8]) -> Self {
        let u32_at = |offset| u32::from_ne_bytes(array(bytes, offset));
        let u64_at = |offset| u64::from_ne_bytes(array(bytes, offset));
        Self {
            recovery: bytes.get(1).copied().unwrap_or(0),
            segment: u32_at(16),
            unacked: u32_at(24),
            sacked: u32_at(28),
            lost: u32_at(32),
            retransmitted: u32_at(36),
            path_mtu: u32_at(60),
            srtt_us: u32_at(68),
            rtt_deviation_us: u32_at(72),
            threshold: u32_at(76),
            window: u32_at(80),
            total_retransmitted: u32_at(100),
            pacing: u64_at(104),
            acked_bytes: u64_at(120),
            data_segments: u32_at(156),
            window_blocked_us: u64_at(176),
            peer_window: u32_at(228),
        }
    }

    /// Returns the congestion window in bytes.
    pub fn window_bytes(&self) -> u64 {
        u64::from(self.window) * u64::from(self.segment)
    }

    /// Returns the slow start threshold in bytes; the maximum value if none.
    pub fn threshold_bytes(&self) -> u64 {
        if self.threshold >= NO_THRESHOLD {
            return u64::MAX;
        }
        u64::from(self.threshold) * u64::from(self.segment)
    }

    /// Returns the smoothed round-trip time; `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        (self.srtt_us > 0).then(|| Duration::from_micros(self.srtt_us.into()))
    }

    /// Returns the bytes in flight (`tcp_packets_in_flight`): sent and neither acknowledged nor considered
    /// lost, or retransmitted.
    pub fn in_flight_bytes(&self) -> u64 {
        let left = self.sacked.saturating_add(self.lost);
        let segments = self.unacked.saturating_sub(left).saturating_add(self.retransmitted);
        u64::from(segments) * u64::from(self.segment)
    }

    /// Returns the segments considered lost since the start, as far as known: those retransmitted and those
    /// waiting for it.
    pub fn total_lost(&self) -> u64 {
        let waiting = self.lost.saturating_sub(self.retransmitted);
        u64::from(self.total_retransmitted) + u64::from(waiting)
    }

    /// Returns true if the window is reduced after a loss or mark.
    pub const fn is_reduced(&self) -> bool {
        self.recovery >= 2
    }
}

/// A subflow of an MPTCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowInfo {
    /// Local address.
    pub local: SocketAddr,
    /// Peer address.
    pub remote: SocketAddr,
    /// TCP state of the subflow.
    pub tcp: TcpInfo,
}

/// State of an MPTCP connection as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpInfo {
    /// The connection has fallen back to TCP: the peer or a middlebox does not support MPTCP.
    pub fell_back: bool,
    /// Data retransmitted on another subflow, in segments.
    pub reinjections: u32,
}

impl MptcpInfo {
    fn parse(bytes: &[u8]) -> Self {
        let u32_at = |offset| u32::from_ne_bytes(array(bytes, offset));
        Self { fell_back: u32_at(8) & FALLBACK != 0, reinjections: u32_at(44) }
    }
}

/// Returns the state of a TCP connection.
///
/// # Errors
/// Error of the kernel.
pub fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut bytes = [0; TCP_INFO_SIZE];
    let length = read(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    Ok(TcpInfo::parse(bytes.get(..length).unwrap_or(&bytes)))
}

/// Returns the state of an MPTCP connection.
///
/// For a connection that has fallen back, the kernel returns the flag or an error, depending on its version;
/// both are reported as [`MptcpInfo::fell_back`].
///
/// # Errors
/// Any other error of the kernel.
pub fn mptcp_info(socket: BorrowedFd<'_>) -> io::Result<MptcpInfo> {
    let mut bytes = [0; MPTCP_INFO_SIZE];
    match read(socket, SOL_MPTCP, MPTCP_INFO, &mut bytes) {
        Ok(length) => Ok(MptcpInfo::parse(bytes.get(..length).unwrap_or(&bytes))),
        Err(error) if is_unknown(&error) => Ok(MptcpInfo { fell_back: true, reinjections: 0 }),
        Err(error) => Err(error),
    }
}

/// Returns the subflows of an MPTCP connection, in the order in which they were opened.
///
/// # Errors
/// Error of the kernel; a connection that has fallen back to TCP has no subflows.
pub fn subflows(socket: BorrowedFd<'_>) -> io::Result<Vec<SubflowInfo>> {
    match full_info(socket) {
        // Linux before 6.6.
        Err(error) if is_unknown(&error) => tcp_info_and_addresses(socket),
        answer => answer,
    }
}

/// Returns true if the kernel does not support an option.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT))
}

/// Uses `MPTCP_FULL_INFO`: everything at one instant.
fn full_info(socket: BorrowedFd<'_>) -> io::Result<Vec<SubflowInfo>> {
    let mut infos = [0_u8; SUBFLOWS * SUBFLOW_INFO_SIZE];
    let mut tcp = [0_u8; SUBFLOWS * TCP_INFO_SIZE];
    let mut head = [0_u8; FULL_INFO_SIZE + MPTCP_INFO_SIZE];
    put(&mut head, 4, &(TCP_INFO_SIZE as u32).to_ne_bytes());
    put(&mut head, 12, &(SUBFLOW_INFO_SIZE as u32).to_ne_bytes());
    put(&mut head, 20, &(SUBFLOWS as u32).to_ne_bytes());
    put(&mut head, 24, &(infos.as_mut_ptr() as u64).to_ne_bytes());
    put(&mut head, 32, &(tcp.as_mut_ptr() as u64).to_ne_bytes());
    // SAFETY: through the two pointers the kernel writes as many elements as `head` states, each of the
    // stated size; both arrays have space for them and outlive the call.
    unsafe { get(socket, SOL_MPTCP, MPTCP_FULL_INFO, &mut head) }?;
    let count = u32::from_ne_bytes(array(&head, 16)) as usize;
    let subflow = |(info, tcp): (&[u8], &[u8])| {
        let addresses = info.get(8..)?;
        Some((addresses, tcp)).and_then(parse_subflow)
    };
    let pairs = infos.chunks_exact(SUBFLOW_INFO_SIZE).zip(tcp.chunks_exact(TCP_INFO_SIZE));
    Ok(pairs.take(count).filter_map(subflow).collect())
}

/// Uses `MPTCP_SUBFLOW_ADDRS` and `MPTCP_TCPINFO`, one after the other.
fn tcp_info_and_addresses(socket: BorrowedFd<'_>) -> io::Result<Vec<SubflowInfo>> {
    let list = |option, size: usize| -> io::Result<(Vec<u8>, usize)> {
        let mut bytes = vec![0; SUBFLOW_DATA_SIZE + SUBFLOWS * size];
        put(&mut bytes, 0, &(SUBFLOW_DATA_SIZE as u32).to_ne_bytes());
        put(&mut bytes, 12, &(size as u32).to_ne_bytes());
        read(socket, SOL_MPTCP, option, &mut bytes)?;
        let count = u32::from_ne_bytes(array(&bytes, 4)) as usize;
        Ok((bytes.split_off(SUBFLOW_DATA_SIZE), count))
    };
    let (addresses, count) = list(MPTCP_SUBFLOW_ADDRS, ADDRESSES_SIZE)?;
    let (tcp, also) = list(MPTCP_TCPINFO, TCP_INFO_SIZE)?;
    let pairs = addresses.chunks_exact(ADDRESSES_SIZE).zip(tcp.chunks_exact(TCP_INFO_SIZE));
    Ok(pairs.take(count.min(also)).filter_map(parse_subflow).collect())
}

fn parse_subflow((addresses, tcp): (&[u8], &[u8])) -> Option<SubflowInfo> {
    let (local, remote) = addresses.split_at_checked(ADDRESSES_SIZE / 2)?;
    let (local, remote) = (parse_address(local)?, parse_address(remote)?);
    Some(SubflowInfo { local, remote, tcp: TcpInfo::parse(tcp) })
}

/// Parses a `struct sockaddr_in` or `sockaddr_in6`. An IPv4-mapped IPv6 address is returned as IPv4.
fn parse_address(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(array(bytes, 2));
    let address = match i32::from(u16::from_ne_bytes(array(bytes, 0))) {
        libc::AF_INET => IpAddr::from(Ipv4Addr::from(array::<4>(bytes, 4))),
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::from(array::<16>(bytes, 8))).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Returns `N` bytes from `offset` on, padded with zeros.
fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.iter_mut().zip(bytes.iter().skip(offset)).for_each(|(to, from)| *to = *from);
    out
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes.iter_mut().skip(offset).zip(value).for_each(|(to, from)| *to = *from);
}

/// Reads an option whose value contains no pointers.
fn read(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    bytes: &mut [u8],
) -> io::Result<usize> {
    // SAFETY: none of the options read here has pointers in its value.
    unsafe { get(socket, level, option, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_values_and_older_kernels_are_understood() {
        let mut bytes = [0; 120];
        put(&mut bytes, 16, &1448_u32.to_ne_bytes());
        put(&mut bytes, 76, &NO_THRESHOLD.to_ne_bytes());
        put(&mut bytes, 80, &10_u32.to_ne_bytes());
        let info = TcpInfo::parse(&bytes);
        assert_eq!((info.window_bytes(), info.threshold_bytes()), (14_480, u64::MAX));
        assert_eq!((info.srtt(), info.acked_bytes, info.peer_window), (None, 0, 0));
    }

    // Source: tcp_packets_in_flight of Linux: packets_out - (sacked_out + lost_out) + retrans_out.
    #[test]
    fn bytes_in_flight_are_sent_and_resent_less_sacked_and_lost() {
        let info = TcpInfo {
            segment: 1000,
            unacked: 20,
            sacked: 8,
            lost: 5,
            retransmitted: 2,
            total_retransmitted: 6,
            ..TcpInfo::default()
        };
        assert_eq!(info.in_flight_bytes(), 9000);
        assert_eq!(info.total_lost(), 9);
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let mut four = [0; 128];
        put(&mut four, 0, &(libc::AF_INET as u16).to_ne_bytes());
        put(&mut four, 2, &[0x13, 0x88, 10, 0, 0, 1]);
        assert_eq!(parse_address(&four), Some("10.0.0.1:5000".parse().unwrap()));
        let mut six = [0; 128];
        put(&mut six, 0, &(libc::AF_INET6 as u16).to_ne_bytes());
        put(&mut six, 2, &[0x13, 0x88]);
        put(&mut six, 8, &"fd73:6b79::1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(parse_address(&six), Some("[fd73:6b79::1]:5000".parse().unwrap()));
        assert_eq!(parse_address(&[0; 128]), None);
    }

    #[test]
    fn options_of_newer_and_older_kernels_agree_on_a_subflow() {
        use crate::hosts::kernel::stream_socket;
        use socket2::{Domain, Protocol};
        use std::os::fd::AsFd;

        let Ok(listener) = stream_socket(Domain::IPV4, Protocol::MPTCP) else {
            println!("skipped: no MPTCP here");
            return;
        };
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(1).unwrap();
        let there = listener.local_addr().unwrap();
        let socket = stream_socket(Domain::IPV4, Protocol::MPTCP).unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.connect(&there).unwrap();
        let older = tcp_info_and_addresses(socket.as_fd()).unwrap();
        let local = socket.local_addr().unwrap().as_socket().unwrap();
        assert_eq!((older.len(), older[0].local), (1, local));
        assert_eq!(Some(older[0].remote), there.as_socket());
        assert!(older[0].tcp.window >= 10 && older[0].tcp.segment > 1000);
        match full_info(socket.as_fd()) {
            Ok(newer) => {
                let known = |info: &SubflowInfo| (info.local, info.remote, info.tcp.segment);
                assert_eq!(newer.iter().map(known).collect::<Vec<_>>(), [known(&older[0])]);
            }
            Err(error) if is_unknown(&error) => println!("skipped: no MPTCP_FULL_INFO here"),
            Err(error) => panic!("{error}"),
        }
        assert!(!mptcp_info(socket.as_fd()).unwrap().fell_back);
    }
}
