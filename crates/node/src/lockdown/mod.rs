//! Lockdown of the process: an attacker who exploits a parser cannot start programs, access unrelated files,
//! or use capabilities that the gateway does not need.
//!
//! Threads started later inherit all restrictions, so [`lock_down`] is called first. Restrictions that the
//! kernel does not support are left out and reported in [`Lockdown`].

mod files;
mod rights;
mod system_calls;

use std::fs;
use std::path::Path;

use skybraid_gateway::GatewayConfig;

/// The lockdown in force, as the kernel reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Lockdown {
    /// Capabilities of the process.
    pub capabilities: Vec<String>,
    /// Child processes cannot gain privileges (`no_new_privs`).
    pub no_new_privs: bool,
    /// System calls are filtered (seccomp).
    pub seccomp: bool,
    /// Files are restricted (Landlock): `full`, `partial` or `none`.
    pub landlock: String,
    /// Parts that could not be set, each with the reason.
    pub problems: Vec<String>,
}

/// Drops all privileges that the gateway of this configuration does not need; `log` is its log file. Called
/// by the first thread before there are others. Failures are in [`Lockdown::problems`].
pub fn lock_down(config: &GatewayConfig, log: Option<&Path>) -> Lockdown {
    let mut problems = Vec::new();
    let mut note = |what: &str, result: Result<(), String>| {
        problems.extend(result.err().map(|error| format!("{what}: {error}")));
    };
    note("capabilities", rights::drop_all_but(rights::needed(config, log)));
    let landlock = files::restrict(config, log);
    let restricted = landlock.clone().unwrap_or("none");
    note("landlock", landlock.map(drop));
    note("seccomp", system_calls::filter());
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim).to_string()
    };
    Lockdown {
        capabilities: rights::names(u64::from_str_radix(&field("CapEff:"), 16).unwrap_or(0)),
        no_new_privs: field("NoNewPrivs:") == "1",
        seccomp: field("Seccomp:") == "2",
        landlock: restricted.to_string(),
        problems,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
    use std::net::{ToSocketAddrs, UdpSocket};
    use std::process::Command;
    use std::thread;

    use nix::pty::openpty;

    const FILE: &str = "side = 'ground'\nkey = 'k'\npeer = 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='\n\
                        [path.one]\nlisten = '127.0.0.1:9417'\n[[mavlink]]\nserial = '/tmp/skybraid-none'\n";

    fn config(more: &str) -> GatewayConfig {
        let read =
            skybraid_scenario::GatewayFile::parse(&format!("{FILE}{more}"), Path::new("g.toml"));
        read.unwrap().config
    }

    fn rights() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(set.trim(), 16).unwrap()
    }

    #[test]
    fn a_locked_gateway_does_its_work_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("skybraid-locked-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("elsewhere")).unwrap();
        let place = folder.clone();
        // A lockdown applies to a thread and its children, so the other tests are not affected.
        let locked = thread::spawn(move || {
            let log = place.join("logs/flight.jsonl");
            let before = rights();
            let locked = lock_down(&config(""), Some(&log));
            assert_eq!(locked.problems, Vec::<String>::new());
            assert!(locked.no_new_privs);
            // Only capabilities held before, and of those only the ones that may be needed.
            assert_eq!(rights() & !before, 0);
            let may_stay = ["net_admin", "dac_override"];
            assert!(
                locked
                    .capabilities
                    .iter()
                    .all(|capability| may_stay.contains(&capability.as_str())),
                "{locked:?}"
            );

            // Log: files are created, written, truncated, listed and removed.
            let file = place.join("logs/flight-1.jsonl");
            let mut written = fs::File::create_new(&file).unwrap();
            written.write_all(b"{}\n").unwrap();
            written.sync_data().unwrap();
            written.set_len(1).unwrap();
            assert_eq!(fs::read_dir(place.join("logs")).unwrap().count(), 1);
            fs::remove_file(&file).unwrap();
            // Devices, including those added later.
            let terminal = openpty(None, None).unwrap();
            let device = nix::unistd::ttyname(&terminal.slave).unwrap();
            let link = fs::OpenOptions::new().read(true).write(true).open(&device).unwrap();
            nix::sys::termios::tcgetattr(&link).unwrap();
            // Sockets, names, interfaces, threads, time.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
            assert_eq!(socket.recv(&mut [0; 9]).unwrap(), 1);
            assert!("localhost:1".to_socket_addrs().unwrap().count() > 0);
            skybraid_io::netlink::Netlink::open_here().unwrap().link("lo").unwrap();
            thread::spawn(|| thread::sleep(std::time::Duration::from_millis(1))).join().unwrap();

            let refused = |result: std::io::Result<()>, what: &str| match result {
                Ok(()) => panic!("{what} is possible"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}")
                }
            };
            if locked.seccomp {
                refused(Command::new("/bin/true").status().map(drop), "a program");
                let packet = nix::sys::socket::socket(
                    nix::sys::socket::AddressFamily::Packet,
                    nix::sys::socket::SockType::Raw,
                    nix::sys::socket::SockFlag::empty(),
                    None,
                );
                refused(packet.map(drop).map_err(Into::into), "a packet socket");
                let spaces = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER);
                refused(spaces.map_err(Into::into), "a namespace");
            }
            if locked.landlock != "none" {
                refused(fs::write(place.join("elsewhere/a"), "a"), "a file elsewhere");
                refused(fs::read_dir("/root").map(drop), "root's home");
                refused(fs::write("/etc/skybraid-test", "a"), "a file in /etc");
            }
            locked
        });
        let locked = locked.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert!(locked.seccomp);
        }
    }

    #[test]
    fn rights_are_kept_that_the_file_needs() {
        let rights = |more: &str| rights::names(rights::needed(&config(more), None));
        let has = |more: &str, name: &str| rights(more).iter().any(|right| right == name);
        assert!(has("[tun]\naddress = '10.0.0.1/24'\n", "net_admin"));
        assert!(!has("", "net_bind_service"));
        assert!(has("[udp.low]\nlisten = '127.0.0.1:514'\n", "net_bind_service"));
        assert!(!has("", "net_raw"));
        let text = FILE.replace("[[mavlink]]", "interface = 'lo'\n[[mavlink]]");
        let config = skybraid_scenario::GatewayFile::parse(&text, Path::new("g.toml"));
        let needed = rights::needed(&config.unwrap().config, None);
        assert!(rights::names(needed).iter().any(|right| right == "net_raw"));
    }
}
