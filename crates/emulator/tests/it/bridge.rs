//! A frame copier between the two ends of each segment: a link without delay, loss or limit.
#![allow(unsafe_code, reason = "packet sockets have no safe binding to an interface")]

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use skybraid_emulator::testbed::{Port, Testbed};
use skybraid_io::netlink::Namespace;
use socket2::{Domain, Protocol, Socket, Type};

/// Carries the frames of all segments until it is dropped.
pub struct Bridge {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

/// A packet socket that gets all frames of one interface.
fn packet_socket(emulator: &Namespace, port: &Port) -> Socket {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let open = || {
        Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(protocol)))).unwrap()
    };
    let socket = emulator.run(open).unwrap();
    // SAFETY: all bytes zero is a valid address; it lives until `bind` returns.
    let bound = unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = port.index as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    let ignore: i32 = 1;
    // SAFETY: the option's value is an int that outlives the call.
    let set = unsafe {
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING);
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const ignore).cast(), 4)
    };
    assert_eq!(set, 0);
    socket
}

impl Bridge {
    pub fn over(testbed: &Testbed) -> Self {
        let sockets: Vec<Socket> = testbed
            .segments
            .iter()
            .flat_map(|segment| &segment.ends)
            .map(|port| packet_socket(&testbed.emulator, port))
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || carry(&sockets, &stopped));
        Self { stop, thread: Some(thread) }
    }

    #[allow(dead_code, reason = "not every test asks")]
    /// Ends it and gives the longest frame that it has seen, in bytes.
    pub fn max_frame(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn carry(sockets: &[Socket], stop: &AtomicBool) -> usize {
    let mut longest = 0;
    let mut buffer = vec![0; 70_000];
    while !stop.load(Ordering::Relaxed) {
        let poll = |socket: &Socket| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds: Vec<_> = sockets.iter().map(poll).collect();
        // SAFETY: the array outlives the call and has the length that is passed.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, 10) };
        for (number, _) in fds.iter().enumerate().filter(|(_, fd)| fd.revents != 0) {
            let (from, to) = (&sockets[number], &sockets[number ^ 1]);
            // SAFETY: the buffer outlives the call and has the length that is passed.
            let length = unsafe {
                libc::recv(from.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
            };
            if let Ok(length) = usize::try_from(length) {
                longest = longest.max(length);
                let _ = to.send(&buffer[..length]);
            }
        }
    }
    longest
}
