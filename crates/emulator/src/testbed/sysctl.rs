//! Network settings of one namespace, as files of `/proc/sys/net`.

use std::io;
use std::path::{Path, PathBuf};

use skybraid_io::context;
use skybraid_io::netlink::Namespace;

/// Sets `key` (for example `ipv4/ip_forward`) of the namespace.
///
/// # Errors
/// The kernel has no such setting, refuses the value, or `/proc/sys` is read-only.
pub fn set_sysctl(namespace: &Namespace, key: &str, value: &str) -> io::Result<()> {
    let file = file(key);
    namespace.run(|| std::fs::write(&file, value))?.map_err(|error| {
        let (place, file) = (namespace.name(), file.display());
        context(format_args!("cannot set {file} to `{value}` in {place}"), error)
    })
}

/// Reads `key` of the namespace.
///
/// # Errors
/// The kernel has no such setting.
pub fn get_sysctl(namespace: &Namespace, key: &str) -> io::Result<String> {
    let file = file(key);
    let text = namespace.run(|| std::fs::read_to_string(&file))?.map_err(|error| {
        context(format_args!("cannot read {} in {}", file.display(), namespace.name()), error)
    })?;
    Ok(text.trim().to_owned())
}

fn file(key: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(key)
}

/// Prepares a namespace without interfaces for addresses on several networks: no source filtering, each
/// interface answers only for its own addresses, and IPv6 neither waits nor asks for routers.
pub(super) fn prepare_node(namespace: &Namespace, routes: bool) -> io::Result<()> {
    let mut settings = Vec::new();
    for scope in ["all", "default"] {
        for (key, value) in [("rp_filter", "0"), ("arp_announce", "2"), ("arp_ignore", "1")] {
            settings.push((format!("ipv4/conf/{scope}/{key}"), value));
        }
        // ICMP redirects would override the choice of path.
        settings.push((format!("ipv4/conf/{scope}/send_redirects"), "0"));
        settings.push((format!("ipv4/conf/{scope}/accept_redirects"), "0"));
        if has_ipv6() {
            for key in ["accept_dad", "router_solicitations", "accept_ra", "accept_redirects"] {
                settings.push((format!("ipv6/conf/{scope}/{key}"), "0"));
            }
            // As in IPv4, an interface keeps its addresses when it goes down.
            settings.push((format!("ipv6/conf/{scope}/keep_addr_on_down"), "1"));
        }
    }
    settings.iter().try_for_each(|(key, value)| set_sysctl(namespace, key, value))?;
    if routes { let_forward(namespace) } else { Ok(()) }
}

/// Enables packet forwarding in a node.
pub(super) fn let_forward(namespace: &Namespace) -> io::Result<()> {
    set_sysctl(namespace, "ipv4/ip_forward", "1")?;
    if has_ipv6() { set_sysctl(namespace, "ipv6/conf/all/forwarding", "1") } else { Ok(()) }
}

/// Prevents the kernel from sending its own packets into the links.
pub(super) fn prepare_emulator(namespace: &Namespace) -> io::Result<()> {
    let scopes: &[&str] = if has_ipv6() { &["all", "default"] } else { &[] };
    scopes.iter().try_for_each(|scope| {
        set_sysctl(namespace, &format!("ipv6/conf/{scope}/disable_ipv6"), "1")
    })
}

/// Returns true if the kernel supports IPv6.
pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").is_dir()
}
