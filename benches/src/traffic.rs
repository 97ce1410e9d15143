//! Probes, datagrams and bytes between two hosts.

use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, recvmsg, sendmmsg, setsockopt, sockopt,
};
use std::os::fd::AsRawFd;

use crate::bed::{Namespace, come_first};

const SINK: &str = "10.0.0.2:9000";
/// Arrivals count for the rate after so many seconds.
const SETTLING: f64 = 0.5;

#[expect(clippy::disallowed_methods, reason = "measures wall time")]
pub fn now() -> Instant {
    Instant::now()
}

/// The value that a share of the sorted values does not exceed.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// Round trips of 64-byte probes in seconds, 5 ms apart.
pub fn round_trips(vehicle: &Namespace, ground: &Namespace, count: usize) -> Vec<f64> {
    let done = Arc::new(AtomicBool::new(false));
    let echo = ground.run(|| UdpSocket::bind(SINK)).unwrap();
    echo.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let ended = Arc::clone(&done);
    let echoing = std::thread::spawn(move || {
        come_first();
        let mut buffer = [0; 2048];
        while !ended.load(Ordering::Relaxed) {
            if let Ok((length, from)) = echo.recv_from(&mut buffer) {
                echo.send_to(&buffer[..length], from).ok();
            }
        }
    });
    let probe = vehicle.run(|| UdpSocket::bind("10.0.0.1:0")).unwrap();
    probe.connect(SINK).unwrap();
    probe.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let sending = probe.try_clone().unwrap();
    let start = now();
    let warm_up = 50;
    let sender = std::thread::spawn(move || {
        come_first();
        for number in 0..count + warm_up {
            let due = start + Duration::from_millis(5 * number as u64);
            sleep(due.saturating_duration_since(now()));
            let mut packet = [0; 64];
            packet[..8].copy_from_slice(&(number as u64).to_le_bytes());
            packet[8..16].copy_from_slice(&(start.elapsed().as_nanos() as u64).to_le_bytes());
            sending.send(&packet).unwrap();
        }
    });
    let receiving = move || {
        come_first();
        let mut trips = Vec::new();
        let mut buffer = [0; 2048];
        while let Ok(length) = probe.recv(&mut buffer) {
            let came = start.elapsed().as_nanos() as u64;
            assert_eq!(length, 64);
            let field = |at: usize| u64::from_le_bytes(buffer[at..at + 8].try_into().unwrap());
            if field(0) >= warm_up as u64 {
                trips.push((came - field(8)) as f64 * 1e-9);
            }
            if field(0) + 1 == (count + warm_up) as u64 {
                break;
            }
        }
        trips
    };
    let trips = std::thread::spawn(receiving).join().unwrap();
    sender.join().unwrap();
    done.store(true, Ordering::Relaxed);
    echoing.join().unwrap();
    assert!(trips.len() * 10 >= count * 9, "only {} of {count} probes came back", trips.len());
    trips
}

/// Outcome of sent datagrams.
pub struct Datagrams {
    pub sent: u64,
    pub received: u64,
    /// IP bits per second, from when things have settled to the last arrival.
    pub ip_rate: f64,
    /// Seconds from the start to the end.
    pub took: f64,
}

/// Time at which the kernel received the next datagram, in seconds; `None` if none comes.
fn arrival(socket: &UdpSocket) -> Option<f64> {
    let mut buffer = [0; 2048];
    let mut vectors = [IoSliceMut::new(&mut buffer)];
    let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let fd = socket.as_raw_fd();
    let message = recvmsg::<()>(fd, &mut vectors, Some(&mut space), MsgFlags::empty()).ok()?;
    message.cmsgs().ok()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => {
            Some(time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9)
        }
        _ => None,
    })
}

/// Datagrams of `payload` bytes at `rate` bit/s of IP packets for `seconds`.
pub fn datagrams(
    vehicle: &Namespace,
    ground: &Namespace,
    payload: usize,
    rate: f64,
    seconds: f64,
) -> Datagrams {
    let sink = ground.run(|| UdpSocket::bind(SINK)).unwrap();
    setsockopt(&sink, sockopt::RcvBufForce, &(64 << 20)).ok();
    sink.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    let start = now();
    setsockopt(&sink, sockopt::ReceiveTimestampns, &true).unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut received, mut begun, mut first, mut last) = (0_u64, None, None, 0.0);
        while let Some(at) = arrival(&sink) {
            last = at;
            received += 1;
            // By then a queue that must be full has something in it.
            if first.is_none() && last - *begun.get_or_insert(last) > SETTLING {
                first = Some((last, received));
            }
        }
        let (from, before) = first.unwrap_or((last, received));
        (received, (received - before) as f64 / (last - from))
    });
    let socket = vehicle.run(|| UdpSocket::bind("10.0.0.1:0")).unwrap();
    setsockopt(&socket, sockopt::SndBufForce, &(16 << 20)).ok();
    socket.connect(SINK).unwrap();
    let bits = (payload + 28) as f64 * 8.0;
    let total = (rate * seconds / bits) as u64;
    let data = vec![7_u8; payload];
    let most = 16;
    let vectors: Vec<_> = (0..most).map(|_| [std::io::IoSlice::new(&data)]).collect();
    let none = vec![None::<SockaddrIn>; most];
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(most, None);
    let mut sent = 0;
    while sent < total {
        let due = ((start.elapsed().as_secs_f64() * rate / bits) as u64).min(total);
        let count = ((due - sent) as usize).min(most);
        if count > 0 {
            let done = sendmmsg(
                socket.as_raw_fd(),
                &mut headers,
                &vectors[..count],
                &none[..count],
                [],
                MsgFlags::empty(),
            );
            sent += done.map_or(0, |done| done.count() as u64);
        } else {
            let next = (sent + 1) as f64 * bits / rate - start.elapsed().as_secs_f64();
            if next > 0.0 {
                sleep(Duration::from_secs_f64(next));
            }
        }
    }
    let took = start.elapsed().as_secs_f64();
    let (received, per_second) = receiver.join().unwrap();
    Datagrams { sent, received, ip_rate: per_second * bits, took }
}

/// Bits per second that a TCP connection brings over.
pub fn tcp(vehicle: &Namespace, ground: &Namespace, seconds: f64) -> f64 {
    let listener = ground.run(|| TcpListener::bind(SINK)).unwrap();
    let sink = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut buffer = vec![0; 1 << 18];
        let (start, mut bytes) = (now(), 0);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => bytes += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            if start.elapsed().as_secs_f64() > seconds {
                break;
            }
        }
        bytes as f64 * 8.0 / start.elapsed().as_secs_f64()
    });
    let mut stream = vehicle.run(|| TcpStream::connect(SINK)).unwrap();
    socket2::SockRef::from(&stream).set_tcp_congestion(b"cubic").ok();
    let data = vec![7; 1 << 17];
    while stream.write(&data).is_ok() {}
    drop(stream);
    sink.join().unwrap()
}
