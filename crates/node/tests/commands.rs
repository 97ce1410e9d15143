//! The commands as a user gives them: keys, checks, two gateways on loopback, their state.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

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

    /// The exit code and what was said, on the output and as errors.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// Makes a key and gives the line for the other end's file.
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

/// A gateway that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_key_is_made_for_its_owner_alone_and_never_twice() {
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
    assert!(said.contains("is there already, and no key is written over"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), before);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, said) = folder.run(&["pubkey", "kite.key"]);
    assert_eq!(code, 2);
    assert!(said.contains("`chmod 600 kite.key` mends that"), "{said}");
}

#[test]
fn the_packaged_examples_are_accepted_once_the_keys_are_there() {
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
fn a_wrong_file_is_told_with_its_line_and_the_gateway_does_not_start() {
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

/// Ports that nobody has.
fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

#[test]
fn two_gateways_find_one_another_and_say_how_they_stand() {
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
        for _ in 0..200 {
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
    drop(aircraft);
    until(&["status", "ground.toml"], 1, "Nothing has been heard from the aircraft for ");
    let logs: Vec<_> = fs::read_dir(folder.0.join("logs")).unwrap().collect();
    assert_eq!(logs.len(), 1);
}
