//! A connection that was split in two.

#![allow(unsafe_code, reason = "TCP_INFO has no safe wrapper")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::ptr::from_mut;
use std::time::Duration as StdDuration;

use skybraid_units::Duration;
use socket2::Socket;

use super::flow::Flow;

/// A split connection as somebody sees it who looks on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Who opened it. The server sees this address too.
    pub client: SocketAddr,
    /// To whom. The client believes to speak with it.
    pub server: SocketAddr,
    /// Whether the server has answered.
    pub established: bool,
    /// Between client and proxy.
    pub near: Half,
    /// Between proxy and server.
    pub far: Half,
}

/// One of the two connections that a connection was split into, as the proxy's kernel sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Half {
    /// Its congestion control.
    pub congestion: String,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Congestion window, in segments.
    pub window: u32,
    /// Segments that were sent again.
    pub retransmissions: u32,
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It waits for its sockets.
    Waits,
    /// There is more to do at once.
    HasMore,
    /// Both sides have ended it.
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
    /// Moves bytes both ways. While the server has not answered, only reads what the client sends.
    ///
    /// # Errors
    /// One of the sides has failed, and so must the other.
    pub fn advance(&mut self) -> io::Result<Progress> {
        for side in [&self.near, &self.far] {
            if let Some(error) = side.take_error()? {
                return Err(error);
            }
        }
        // A socket has no peer before the peer has answered.
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

/// Lets the socket reset its connection when it is closed.
pub(super) fn abort(socket: &Socket) {
    // A socket that is gone already needs no reset.
    socket.set_linger(Some(StdDuration::ZERO)).ok();
}

fn half(socket: &Socket) -> Half {
    let name = socket.tcp_congestion().unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    // SAFETY: all zeros are a valid `tcp_info`.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: both pointers are to values that outlive the call; `length` is the size of the first,
    // which stays zero where the kernel knows less.
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
