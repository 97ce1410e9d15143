//! What can go wrong with a flow over the kernel's sockets.

use super::framing::FramingError;

/// Why a flow cannot begin or has ended. Names the flow, what was tried, and what the kernel said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The kernel cannot run the transport as written.
    #[error("flow `{flow}` cannot be carried by the kernel: {reason}")]
    Unsupported {
        /// The flow.
        flow: String,
        /// What does not fit.
        reason: String,
    },
    /// The kernel has no MPTCP.
    #[error(
        "flow `{flow}`: this kernel makes no MPTCP socket ({reason}): it needs a kernel with \
         CONFIG_MPTCP and net.mptcp.enabled = 1"
    )]
    NoMptcp {
        /// The flow.
        flow: String,
        /// What the kernel said.
        reason: String,
    },
    /// The congestion control cannot be set.
    #[error(
        "flow `{flow}`: the kernel refuses the congestion control `{name}` ({reason}); it offers \
         {available}; one that is not in net.ipv4.tcp_allowed_congestion_control can be set by root only"
    )]
    Congestion {
        /// The flow.
        flow: String,
        /// The congestion control's name in the kernel.
        name: String,
        /// What the kernel said.
        reason: String,
        /// What `net.ipv4.tcp_available_congestion_control` lists.
        available: String,
    },
    /// A socket cannot be made ready.
    #[error("flow `{flow}`: cannot {what}: {reason}")]
    Socket {
        /// The flow.
        flow: String,
        /// What was tried.
        what: String,
        /// What the kernel said.
        reason: String,
    },
    /// The connection has failed.
    #[error("flow `{flow}`, {ends}: {doing} failed: {reason}")]
    Connection {
        /// The flow.
        flow: String,
        /// The vehicle's and the ground's address and port.
        ends: String,
        /// What was going on.
        doing: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// What arrived is not what was written.
    #[error("flow `{flow}`, {ends}: {error}")]
    Framing {
        /// The flow.
        flow: String,
        /// The vehicle's and the ground's address and port.
        ends: String,
        /// What is wrong.
        error: FramingError,
    },
}
