//! Errors of flows over the kernel's sockets.

use super::framing::FramingError;

/// Error that prevents or ends a flow. Includes the flow, the attempted operation, and the kernel's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The kernel does not support the transport as configured.
    #[error("flow `{flow}` cannot be carried by the kernel: {reason}")]
    Unsupported {
        /// The flow.
        flow: String,
        /// Unsupported setting.
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
        /// Error of the kernel.
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
        /// Name of the congestion control in the kernel.
        name: String,
        /// Error of the kernel.
        reason: String,
        /// Content of `net.ipv4.tcp_available_congestion_control`.
        available: String,
    },
    /// A socket cannot be set up.
    #[error("flow `{flow}`: cannot {what}: {reason}")]
    Socket {
        /// The flow.
        flow: String,
        /// Attempted operation.
        what: String,
        /// Error of the kernel.
        reason: String,
    },
    /// The connection has failed.
    #[error("flow `{flow}`, {ends}: {doing} failed: {reason}")]
    Connection {
        /// The flow.
        flow: String,
        /// Address and port of the vehicle and the ground.
        ends: String,
        /// Operation in progress.
        doing: &'static str,
        /// Error of the kernel.
        reason: String,
    },
    /// The received data differs from the data written.
    #[error("flow `{flow}`, {ends}: {error}")]
    Framing {
        /// The flow.
        flow: String,
        /// Address and port of the vehicle and the ground.
        ends: String,
        /// Framing error.
        error: FramingError,
    },
}
