//! Tests of the commands: keys, checks, and two gateways on the loopback interface with their state.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::daemons::{PATIENCE, free_ports, within};

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("skybraid-node-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skybraid-node"));
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    /// Returns exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// Creates a key and returns the line for the file of the other end.
    fn keygen(&self, file: &str) -> String {
        let (code, said, _) = self.run(&["keygen", file]);
        assert_eq!(code, 0);
        let line = said.lines().find(|line| line.starts_with("peer = "));
        line.unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A gateway that is stopped at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_key_file_is_private_and_never_overwritten() {
    let folder = Folder::new("keys");
    let (code, said, _) = folder.run(&["keygen", "kite.key"]);
    assert_eq!(code, 0);
    let public = said.lines().next().unwrap();
    assert!(said.contains(&format!("\npeer = \"{public}\"\n")), "{said}");
    let file = folder.0.join("kite.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let before = fs::read(&file).unwrap();
    assert_eq!(before.len(), 45);
    assert!(
        !said.contains(std::str::from_utf8(&before).unwrap().trim()),
        "the private key was printed"
    );
    assert_eq!(folder.run(&["pubkey", "kite.key"]), (0, format!("{public}\n"), String::new()));
    let (code, _, said) = folder.run(&["keygen", "kite.key"]);
    assert_eq!(code, 2);
    assert!(said.contains("exists, and a key is never overwritten"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), before);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, said) = folder.run(&["pubkey", "kite.key"]);
    assert_eq!(code, 2);
    assert!(said.contains("`chmod 600 kite.key` mends that"), "{said}");
}

#[test]
fn a_pre_shared_key_file_is_private_and_checked() {
    let folder = Folder::new("psk");
    let (code, said, _) = folder.run(&["genpsk", "both.psk"]);
    assert_eq!(code, 0);
    assert!(said.contains("\npsk = \"both.psk\"\n"), "{said}");
    let file = folder.0.join("both.psk");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let key = fs::read_to_string(&file).unwrap();
    assert!(key.len() == 45 && !said.contains(key.trim()), "the key was printed");
    assert_eq!(folder.run(&["genpsk", "both.psk"]).0, 2);
    let peers = [folder.keygen("one.key"), folder.keygen("two.key")];
    let peers = peers.map(|line| line.trim_start_matches("peer = ").to_string()).join(", ");
    folder.keygen("kite.key");
    folder.write(
        "kite.toml",
        &format!(
            "side = \"aircraft\"\nkey = \"kite.key\"\npsk = \"both.psk\"\npeer = [{peers}]\n\
             [path.lte]\nremote = \"192.0.2.1:9417\"\n"
        ),
    );
    let (code, said, wrong) = folder.run(&["check", "kite.toml"]);
    assert_eq!((code, wrong.as_str()), (0, ""));
    assert!(said.contains("shared key") && said.matches("\n  peer ").count() == 2, "{said}");
}

#[test]
fn the_packaged_examples_are_accepted_once_their_keys_exist() {
    let folder = Folder::new("examples");
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let (aircraft, ground) = (folder.keygen("aircraft.key"), folder.keygen("ground.key"));
    for (name, peer) in [("aircraft", ground), ("ground", aircraft)] {
        let text = fs::read_to_string(packaging.join(format!("{name}.toml"))).unwrap();
        let file = format!("{name}.toml");
        folder.write(&file, &text);
        let (code, _, said) = folder.run(&["check", &file]);
        assert_eq!(code, 2, "the placeholder of the key was accepted");
        assert!(said.contains(": peer: found `PASTE-THE-"), "{said}");
        let line = text.lines().find(|line| line.starts_with("peer = ")).unwrap();
        folder.write(&file, &text.replace(line, &peer));
        let (code, said, wrong) = folder.run(&["check", &file]);
        assert_eq!((code, wrong.as_str()), (0, ""));
        for heading in
            ["Paths:", "Local ends:", "Classes:", "  control      udp, scheduler redundant"]
        {
            assert!(said.contains(heading), "{heading}\n{said}");
        }
    }
}

#[test]
fn an_invalid_file_is_reported_and_prevents_the_start() {
    let folder = Folder::new("wrong");
    folder.write("kite.toml", "side = \"air\"\n");
    for command in ["check", "gateway", "status"] {
        let (code, _, said) = folder.run(&[command, "kite.toml"]);
        assert_eq!(code, 2, "{command}");
        assert_eq!(
            said,
            "skybraid-node: kite.toml:1:8: side: unknown side `air`; did you mean `aircraft`? (expected \
             one of `aircraft`, `ground`)\n  |\n1 | side = \"air\"\n  |        ^^^^^\n"
        );
    }
}

#[test]
fn two_gateways_connect_and_report_their_state() {
    let folder = Folder::new("two");
    let (aircraft, ground) = (folder.keygen("aircraft.key"), folder.keygen("ground.key"));
    let [one, two, air_page, ground_page] = free_ports();
    folder.write(
        "aircraft.toml",
        &format!(
            "side = 'aircraft'\nkey = 'aircraft.key'\n{ground}\n[path.one]\nremote = '127.0.0.1:{one}'\n\
             [path.two]\nremote = '127.0.0.1:{two}'\naddress = '127.0.0.2'\n[udp.video]\nsend_to = \
             '127.0.0.1:1'\n[status]\nlisten = '127.0.0.1:{air_page}'\n[log]\nfile = 'logs/a.jsonl'\n"
        ),
    );
    folder.write(
        "ground.toml",
        &format!(
            "side = 'ground'\nkey = 'ground.key'\n{aircraft}\n[path.one]\nlisten = '127.0.0.1:{one}'\n\
             [path.two]\nlisten = '127.0.0.1:{two}'\n[udp.video]\nsend_to = '127.0.0.1:1'\n[status]\n\
             listen = '127.0.0.1:{ground_page}'\n"
        ),
    );
    let (code, _, said) = folder.run(&["status", "ground.toml"]);
    assert_eq!(code, 2);
    assert!(said.contains("no gateway answers at 127.0.0.1:"), "{said}");
    let start = |file: &str| {
        Running(folder.command(&["gateway", file]).stderr(Stdio::null()).spawn().unwrap())
    };
    let until = |arguments: &[&str], code: i32, words: &str| {
        for _ in 0..1200 {
            let (found, said, _) = folder.run(arguments);
            if found == code && said.contains(words) {
                return said;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("never: exit code {code} with {words}: {:?}", folder.run(arguments));
    };
    let _ground = start("ground.toml");
    until(&["status", "ground.toml"], 1, "Nothing has been heard from the aircraft yet.");
    let aircraft = start("aircraft.toml");
    until(&["status", "ground.toml"], 0, "Connected to the aircraft over 2 of 2 paths");
    let url = format!("http://127.0.0.1:{air_page}/");
    let json = until(&["status", "--url", &url, "--json"], 0, "\"session\": true");
    assert!(json.contains("\"level\": \"good\""), "{json}");
    assert!(json.contains("\"no_new_privs\": true"), "{json}");
    until(&["status", "aircraft.toml"], 0, "locked down: capabilities ");
    for thread in fs::read_dir(format!("/proc/{}/task", aircraft.0.id())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        assert!(status.contains("Seccomp:\t2"), "{status}");
        // Only capabilities for networks and, where the log needs it, for files.
        let rights = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap();
        let rights = u64::from_str_radix(rights.trim(), 16).unwrap();
        assert_eq!(rights & !(1 << 1 | 1 << 12), 0, "{status}");
    }
    drop(aircraft);
    until(&["status", "ground.toml"], 1, "Nothing has been heard from the aircraft for ");
    let logs: Vec<_> = fs::read_dir(folder.0.join("logs")).unwrap().collect();
    assert_eq!(logs.len(), 1);
}

/// Returns the CPU time of a process in clock ticks of 10 ms (proc_pid_stat(5)).
fn ticks(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, rest) = text.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = rest.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn listeners_pause_while_there_are_no_descriptors() {
    let folder = Folder::new("descriptors");
    let (aircraft, _) = (folder.keygen("aircraft.key"), folder.keygen("ground.key"));
    let [path, page, mavlink] = free_ports();
    folder.write(
        "ground.toml",
        &format!(
            "side = 'ground'\nkey = 'ground.key'\nnetwork = 'tcp'\n{aircraft}\n[path.one]\nlisten = \
             '127.0.0.1:{path}'\n[[mavlink]]\ntcp_listen = '127.0.0.1:{mavlink}'\n[status]\nlisten = \
             '127.0.0.1:{page}'\n"
        ),
    );
    let program = env!("CARGO_BIN_EXE_skybraid-node");
    let limited = format!("ulimit -n 32; exec {program} gateway ground.toml");
    let mut command = Command::new("sh");
    command.args(["-c", &limited]).current_dir(&folder.0).stderr(Stdio::null());
    let gateway = Running(command.spawn().unwrap());
    let connect = |port: u16| TcpStream::connect(("127.0.0.1", port));
    assert!(within(PATIENCE, || connect(page).is_ok() && connect(mavlink).is_ok()));
    // More connections than descriptors; some wait in the kernel.
    let held: Vec<TcpStream> =
        (0..12).flat_map(|_| [mavlink, path, page]).flat_map(connect).collect();
    assert!(held.len() > 30);
    sleep(Duration::from_millis(1_000));
    let before = ticks(gateway.0.id());
    sleep(Duration::from_millis(3_000));
    let share = (ticks(gateway.0.id()) - before) as f64 / 300.0;
    assert!(share < 0.1, "{:.0} % of a core", 100.0 * share);
    drop(held);
    // The listener accepts again.
    let answers = || folder.run(&["status", "ground.toml"]).0 == 1;
    assert!(within(PATIENCE, answers), "the page does not answer again");
}

#[test]
fn a_hangup_and_a_file_size_limit_do_not_end_a_gateway() {
    let folder = Folder::new("signals");
    let (aircraft, _) = (folder.keygen("aircraft.key"), folder.keygen("ground.key"));
    let [path, page] = free_ports();
    folder.write(
        "ground.toml",
        &format!(
            "side = 'ground'\nkey = 'ground.key'\n{aircraft}\n[path.one]\nlisten = '127.0.0.1:{path}'\n\
             [udp.video]\nsend_to = '127.0.0.1:1'\n[status]\nlisten = '127.0.0.1:{page}'\n[log]\n\
             file = 'logs/ground.jsonl'\nevery = '100ms'\n"
        ),
    );
    let program = env!("CARGO_BIN_EXE_skybraid-node");
    let limited = format!("ulimit -f 0; exec {program} gateway ground.toml");
    let mut command = Command::new("sh");
    command.args(["-c", &limited]).current_dir(&folder.0).stderr(Stdio::null());
    let mut gateway = Running(command.spawn().unwrap());
    let alarm = || folder.run(&["status", "ground.toml"]).1.contains("log cannot be written");
    assert!(within(Duration::from_secs(10), alarm));
    let process = nix::unistd::Pid::from_raw(gateway.0.id() as i32);
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGHUP).unwrap();
    // The log is tried again each second, and leaves no empty files.
    sleep(Duration::from_millis(2_500));
    assert!(alarm());
    assert_eq!(fs::read_dir(folder.0.join("logs")).unwrap().count(), 0);
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(gateway.0.wait().unwrap().success());
}

#[test]
fn the_doctor_reports_no_gateway_where_none_runs() {
    let folder = Folder::new("doctor");
    let (_, said, _) = folder.run(&["doctor"]);
    let answers = TcpStream::connect("127.0.0.1:9418").is_ok();
    assert_eq!(said.contains("A gateway runs here"), answers, "{said}");
    assert!(said.contains("run a gateway"), "{said}");
}
