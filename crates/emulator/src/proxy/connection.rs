//! A split connection.

#![allow(unsafe_code, reason = "TCP_INFO has no safe wrapper")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::ptr::from_mut;
use std::time::Duration as StdDuration;

use skybraid_units::Duration;
use socket2::Socket;

use super::flow::Flow;

/// State of a split connection, for observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Client address, which the server also sees.
    pub client: SocketAddr,
    /// Server address, which the client also sees.
    pub server: SocketAddr,
    /// Whether the connection to the server is established.
    pub established: bool,
    /// Client to proxy.
    pub near: Half,
    /// Proxy to server.
    pub far: Half,
}

/// State of one half of a split connection, as reported by the proxy's kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Half {
    /// Congestion control.
    pub congestion: String,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Congestion window, in segments.
    pub window: u32,
    /// Retransmitted segments.
    pub retransmissions: u32,
}

/// Progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The connection waits for its sockets.
    Waits,
    /// More can be done at once.
    HasMore,
    /// Both sides have closed.
    Over,
}

/// A split TCP connection.
pub(super) struct Connection {
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub near: Socket,
    pub far: Socket,
    pub to_server: Flow,
    pub to_client: Flow,
    pub established: bool,
}

impl Connection {
    /// Copies bytes in both directions. Until the server has answered, only reads from the client.
    ///
    /// # Errors
    /// One of the sides has failed, so the other must be aborted.
    pub fn advance(&mut self) -> io::Result<Progress> {
        for side in [&self.near, &self.far] {
            if let Some(error) = side.take_error()? {
                return Err(error);
            }
        }
        // A socket has no peer until it is connected.
        self.established = self.established || self.far.peer_addr().is_ok();
        if !self.established {
            while self.to_server.fill(&self.near)? {}
            return Ok(Progress::Waits);
        }
        let up = self.to_server.pass(&self.near, &self.far)?;
        let down = self.to_client.pass(&self.far, &self.near)?;
        Ok(if self.to_server.is_over() && self.to_client.is_over() {
            Progress::Over
        } else if up || down {
            Progress::HasMore
        } else {
            Progress::Waits
        })
    }

    /// Resets both sides.
    pub fn abort(self) {
        abort(&self.near);
        abort(&self.far);
    }

    pub fn look(&self) -> Split {
        let &Self { client, server, established, .. } = self;
        Split { client, server, established, near: half(&self.near), far: half(&self.far) }
    }
}

/// Makes the socket reset its connection on close.
pub(super) fn abort(socket: &Socket) {
    // A socket that is already closed needs no reset.
    socket.set_linger(Some(StdDuration::ZERO)).ok();
}

fn half(socket: &Socket) -> Half {
    let name = socket.tcp_congestion().unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    // SAFETY: all zeros are a valid `tcp_info`.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: both pointers are to values that outlive the call; `length` is the size of the first, which
    // stays zero beyond what the kernel writes.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            from_mut(&mut info).cast(),
            &raw mut length,
        )
    };
    Half {
        congestion: String::from_utf8_lossy(name).into_owned(),
        rtt: Duration::from_micros(i64::from(info.tcpi_rtt)),
        window: info.tcpi_snd_cwnd,
        retransmissions: info.tcpi_total_retrans,
    }
}
