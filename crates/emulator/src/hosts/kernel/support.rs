//! Transports that the kernel supports as configured in a scenario.

use skybraid_transport::TransportConfig;
use skybraid_transport::config::Protocol;
use skybraid_transport::congestion::{CongestionConfig, IdleRestart};
use skybraid_transport::mptcp::buffers::Buffers;
use skybraid_transport::mptcp::path_manager::PathManager;
use skybraid_transport::scheduler::SchedulerConfig;

/// Checks whether Linux supports this transport as configured.
///
/// Supported are TCP and MPTCP with the congestion controls `reno`, `cubic` and `bbr`, each with its own
/// parameters only, and for MPTCP the scheduler `linux`. Keys that the kernel cannot follow must have their
/// defaults, which are those of Linux.
///
/// # Errors
/// Description of the unsupported setting.
pub fn supports(config: &TransportConfig) -> Result<(), String> {
    let mptcp = match config.protocol {
        Protocol::Tcp => false,
        Protocol::Mptcp => true,
        other => return Err(format!("it carries `tcp` and `mptcp`, not `{}`", other.name())),
    };
    congestion_name(&config.congestion)?;
    if mptcp {
        let name = config.scheduler.name();
        if !matches!(config.scheduler, SchedulerConfig::LinuxUpstream(_)) {
            return Err(format!("its only MPTCP scheduler is `linux`, not `{name}`"));
        }
        if SchedulerConfig::by_name(name).as_ref() != Some(&config.scheduler) {
            return Err("the parameters of its scheduler `linux` cannot be changed".to_owned());
        }
        if matches!(config.path_manager, PathManager::Ports(_)) {
            return Err("it opens one subflow per path, not several that differ by port".to_owned());
        }
    }
    let usual = TransportConfig::default();
    let sizes = [config.receive_buffer, config.send_buffer];
    let fixed = [
        ("initial_window", config.initial_window == usual.initial_window),
        ("initial_threshold", config.initial_threshold.is_none()),
        ("max_in_flight", config.max_in_flight.is_none()),
        ("loss_detection", config.loss_detection == usual.loss_detection),
        ("proportional_reduction", config.proportional_reduction),
        ("undo", config.undo),
        ("refuse_when_full", !config.refuse_when_full),
        // Buffers of a set size are not tuned.
        (
            "buffers",
            config.buffers == Buffers::Fixed || sizes == [usual.receive_buffer, usual.send_buffer],
        ),
        ("idle_restart", config.idle_restart != IdleRestart::Off),
        ("window_validation", config.window_validation),
        ("ack_every", config.ack_every == usual.ack_every),
        ("ack_delay", config.ack_delay == usual.ack_delay),
        ("rto_min", config.rto_min == usual.rto_min),
        ("rto_rule", config.rto_rule == usual.rto_rule),
        ("flight_size", config.flight_size == usual.flight_size),
        ("retransmission_restarts_timer", config.retransmission_restarts_timer),
        ("bufferbloat_mitigation", !config.bufferbloat_mitigation),
        // Options that the kernel accepts for TCP sockets only.
        ("segment", !mptcp || config.segment.is_none()),
        ("pacing", !mptcp || !config.pacing),
    ];
    match fixed.iter().find(|(_, fits)| !fits) {
        Some((key, _)) => Err(format!("`{key}` cannot be set per connection there; leave it out")),
        None => Ok(()),
    }
}

/// Returns the kernel's name of this congestion control.
///
/// # Errors
/// The kernel has no equivalent.
pub(super) fn congestion_name(config: &CongestionConfig) -> Result<&'static str, String> {
    let name = match config {
        CongestionConfig::Reno(_) => "reno",
        CongestionConfig::Cubic(_) => "cubic",
        CongestionConfig::Bbr(_) => "bbr",
        other => {
            let name = other.name();
            return Err(format!("its congestion controls are reno, cubic and bbr, not `{name}`"));
        }
    };
    let deployed = |mut config: CongestionConfig| {
        config.use_linux_behaviour();
        config
    };
    if CongestionConfig::by_name(name).map(deployed) != Some(deployed(config.clone())) {
        return Err(format!("the parameters of its congestion control `{name}` cannot be changed"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_transport::config::Profile;
    use skybraid_transport::congestion::cubic;
    use skybraid_units::Duration;

    fn tcp() -> TransportConfig {
        TransportConfig { protocol: Protocol::Tcp, ..TransportConfig::default() }
    }

    #[test]
    fn the_kernel_runs_three_congestion_controls_and_no_other() {
        for about in CongestionConfig::ALL {
            let mut congestion = CongestionConfig::by_name(about.name).unwrap();
            let expected = ["reno", "cubic", "bbr"].contains(&about.name);
            let answer = supports(&TransportConfig { congestion: congestion.clone(), ..tcp() });
            assert_eq!(answer.is_ok(), expected, "{answer:?}");
            congestion.use_linux_behaviour();
            let answer = supports(&TransportConfig { congestion, ..tcp() });
            assert_eq!(answer.is_ok(), expected, "{answer:?}");
        }
    }

    #[test]
    fn mptcp_runs_with_the_scheduler_of_linux_and_nothing_else() {
        for about in SchedulerConfig::ALL {
            let scheduler = SchedulerConfig::by_name(about.name).unwrap();
            let config = TransportConfig { protocol: Protocol::Mptcp, scheduler, ..tcp() };
            assert_eq!(supports(&config).is_ok(), about.name == "linux");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for protocol in Protocol::ALL {
            let config = TransportConfig { protocol, ..TransportConfig::default() };
            if !matches!(protocol, Protocol::Tcp | Protocol::Mptcp) {
                let refused = supports(&config).unwrap_err();
                assert!(refused.contains(&format!("not `{}`", protocol.name())), "{refused}");
            }
        }
        let rfc = TransportConfig { protocol: Protocol::Tcp, ..TransportConfig::of(Profile::Rfc) };
        assert!(supports(&rfc).unwrap_err().contains("`ack_delay`"));
        let slow = TransportConfig { rto_min: Duration::from_secs(1), ..tcp() };
        assert!(supports(&slow).unwrap_err().contains("`rto_min`"));
        let congestion = CongestionConfig::Cubic(cubic::Config { beta: 0.5, ..Default::default() });
        let given = supports(&TransportConfig { congestion, ..tcp() }).unwrap_err();
        assert!(given.contains("parameters") && given.contains("cubic"), "{given}");
    }
}
