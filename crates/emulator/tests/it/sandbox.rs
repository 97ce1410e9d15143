//! The sandbox: what is made in it works for root and for an ordinary user, and is gone with it.
//!
//! The tests start this very file again: as the process outside (`outside`), which re-enters itself as
//! the first process inside (`inside_…`).

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bridge::Bridge;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::{Pid, geteuid};
use skybraid_emulator::command::{Output, Program, exit_code};
use skybraid_emulator::sandbox::{capabilities, is_inside, reenter};
use skybraid_emulator::testbed::Plan;
use skybraid_io::netlink::{Namespace, VethEnd};

/// Says which part the process inside plays.
const PART: &str = "SKYBRAID_TEST_PART";

/// The user and group without rights.
const NOBODY: u32 = 65534;

/// Whether a sandbox can be made; says why not.
fn possible() -> bool {
    let found = capabilities().unwrap();
    if !found.sufficient() {
        println!("skipped: {found:?}");
    }
    found.sufficient()
}

/// Arguments that have this file play a part.
fn play(test: &str) -> [String; 5] {
    let test = format!("sandbox::{test}");
    ["--ignored", "--exact", &test, "--nocapture", "--test-threads=1"].map(str::to_owned)
}

/// This file where everybody may execute it; gone when it is dropped.
struct Copy(PathBuf);

impl Copy {
    fn make(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("skybraid-{name}-{}", std::process::id()));
        // Not copied by this process: a file that is open for writing anywhere, as in the child that
        // another test is just forking, cannot be executed.
        let own = std::env::current_exe().unwrap();
        assert!(Command::new("cp").args([&own, &file]).status().unwrap().success());
        Self(file)
    }

    /// The command that makes a sandbox in which `part` is played.
    fn command(&self, part: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.args(play("outside")).env(PART, part).current_dir("/").stdout(Stdio::piped());
        command
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// Reads until the line `ready`, and what remains to be read.
fn await_ready(child: &mut Child) -> BufReader<impl Read + use<>> {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the sandbox has ended early");
    }
    output
}

#[test]
#[ignore = "the process outside, started by the other tests"]
fn outside() {
    let Ok(part) = std::env::var(PART) else { return };
    let own = std::env::current_exe().unwrap().into_os_string();
    let argv: Vec<OsString> = match part.strip_prefix("sh: ") {
        Some(script) => ["sh", "-c", script].map(OsString::from).to_vec(),
        None => [own].into_iter().chain(play(&part).map(OsString::from)).collect(),
    };
    let added = [("SKYBRAID_TEST_ADDED".into(), "yes".into())];
    std::process::exit(reenter(&argv, &added).unwrap());
}

#[test]
#[ignore = "the first process of a sandbox, started by the other tests"]
fn inside_a_path_carries() {
    if !is_inside() {
        return;
    }
    assert_eq!(std::env::var("SKYBRAID_TEST_ADDED").unwrap(), "yes");
    // A fresh /proc shows the processes of the sandbox alone.
    assert_eq!(std::fs::read_link("/proc/self").unwrap().to_str(), Some("1"));
    let testbed = Plan::behind_gateway(&[("lte", 1500)]).build().unwrap();
    let _bridge = Bridge::over(&testbed);
    let bind = |node: &Namespace, address| node.run(|| UdpSocket::bind((address, 0)).unwrap());
    let path = &testbed.paths[0];
    let near = bind(&testbed.vehicle().namespace, path.vehicle.v4).unwrap();
    let far = bind(&testbed.ground().namespace, path.ground.v4).unwrap();
    far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    near.send_to(b"over the air", far.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 100];
    let (length, source) = far.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], source), (&b"over the air"[..], near.local_addr().unwrap()));
    std::process::exit(42);
}

#[test]
#[ignore = "the first process of a sandbox, started by the other tests"]
fn inside_programs_stay() {
    if !is_inside() {
        return;
    }
    let node = Namespace::create("node").unwrap();
    let outer = Namespace::current("outer").unwrap();
    // One end lies where the test can see it.
    let ends = [(&outer, "canary"), (&node, "inner")];
    let ends = ends.map(|(namespace, name)| VethEnd { namespace, name });
    outer.netlink().unwrap().add_veth(ends, 1500).unwrap();
    let _program = Program::start(&node, &["sleep", "1000"], &[], Output::Inherit, true).unwrap();
    // The name of the test is on the line so far.
    println!("\nready");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn the_sandbox_works_for_root_and_ordinary_users() {
    if !possible() {
        return;
    }
    let copy = Copy::make("enter");
    let check = |mut command: Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(42), "{}", String::from_utf8_lossy(&output.stdout));
    };
    check(copy.command("inside_a_path_carries"));
    if !geteuid().is_root() {
        return println!("not root: tried as an ordinary user alone");
    }
    let mut command = copy.command("inside_a_path_carries");
    command.uid(NOBODY).gid(NOBODY);
    check(command);
}

#[test]
fn killing_the_outer_process_removes_the_whole_sandbox() {
    if !possible() {
        return;
    }
    if !geteuid().is_root() {
        return println!("skipped: needs root, to look into the sandbox's surroundings");
    }
    let copy = Copy::make("kill");
    let outer = Namespace::create("outer").unwrap();
    let mut child = outer.run(|| copy.command("inside_programs_stay").spawn()).unwrap().unwrap();
    let mut output = await_ready(&mut child);
    assert!(outer.netlink().unwrap().link("canary").is_ok());
    child.kill().unwrap();
    // The pipe is at its end when nobody holds it any more: neither C nor P1 nor the program.
    output.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    let mut netlink = outer.netlink().unwrap();
    let gone = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        netlink.link("canary").is_err()
    });
    assert!(gone, "the sandbox's veth is still there");
}

/// The children of all threads of a process.
fn children(process: u32) -> Vec<u32> {
    std::fs::read_dir(format!("/proc/{process}/task"))
        .unwrap()
        .flat_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")))
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .map(|number| number.parse().unwrap())
        .collect()
}

#[test]
fn killing_any_process_of_the_sandbox_ends_the_others() {
    if !possible() || !geteuid().is_root() {
        return println!("skipped: needs root and namespaces");
    }
    let copy = Copy::make("any");
    for user in [0, NOBODY] {
        for generation in 0..3 {
            let outer = Namespace::create("outer").unwrap();
            let spawn = || copy.command("inside_programs_stay").uid(user).gid(user).spawn();
            let mut child = outer.run(spawn).unwrap().unwrap();
            let mut output = await_ready(&mut child);
            let victim = (0..generation).fold(child.id(), |process, _| children(process)[0]);
            kill(Pid::from_raw(victim as i32), Signal::SIGKILL).unwrap();
            output.read_to_end(&mut Vec::new()).unwrap();
            let status = exit_code(child.wait().unwrap());
            assert_eq!(status, 128 + libc::SIGKILL, "user {user}, generation {generation}");
        }
    }
}

#[test]
fn forbidden_user_namespaces_are_an_error_with_its_remedy() {
    if !possible() {
        return;
    }
    let copy = Copy::make("forbidden");
    // A user namespace has its own limit. Without rights in it, another one is needed.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
                  exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    command.arg(&copy.0).args(play("outside")).env(PART, "sh: true");
    let Ok(output) = command.output() else {
        return println!("skipped: there is no program `unshare`");
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot make a user namespace for the sandbox"), "{text}");
    assert!(text.contains("sudo sysctl -w user.max_user_namespaces=10000"), "{text}");
}

#[test]
fn the_outer_process_forwards_sigterm_but_no_terminal_signals() {
    if !possible() {
        return;
    }
    // A test that runs in the background of a shell inherits an ignored SIGINT, which `trap` cannot undo.
    #[allow(unsafe_code, reason = "the default action has no handler that could be unsound")]
    unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) }.unwrap();
    let copy = Copy::make("signals");
    let script = "sh: trap 'echo interrupted' INT; trap 'echo ended; exit 7' TERM; \
                  echo; echo ready; while :; do sleep 0.02; done";
    let mut child = copy.command(script).process_group(0).spawn().unwrap();
    let mut output = await_ready(&mut child);
    let group = Pid::from_raw(child.id() as i32);
    // As the terminal does it: to the whole group.
    nix::sys::signal::killpg(group, Signal::SIGINT).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "interrupted\n");
    kill(group, Signal::SIGTERM).unwrap();
    line.clear();
    output.read_to_string(&mut line).unwrap();
    assert_eq!((line.as_str(), child.wait().unwrap().code()), ("ended\n", Some(7)));
}

#[test]
fn a_missing_program_is_named_before_anything_is_made() {
    let error = reenter(&["no-such-program".into()], &[]).unwrap_err();
    assert_eq!(error.to_string(), "there is no program `no-such-program`");
}

#[test]
fn a_command_that_cannot_be_executed_is_reported_from_inside() {
    if !possible() {
        return;
    }
    let error = reenter(&["/etc/hostname".into()], &[]).unwrap_err().to_string();
    assert!(error.starts_with("cannot execute the command for the sandbox"), "{error}");
}

#[test]
fn capabilities_are_reported_and_leave_the_process_as_it_was() {
    let own = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let before = own();
    let found = capabilities().unwrap();
    assert_eq!(own(), before);
    for capability in &found.list {
        println!("{capability:?}");
        assert!(!capability.found.is_empty());
        assert_eq!(capability.present, capability.remedy.is_none());
    }
    assert!(found.get("veth").is_some_and(|veth| veth.needed));
    assert!(found.congestion_controls.iter().any(|name| name == "reno"));
    if !geteuid().is_root() || !found.sufficient() {
        return;
    }
    // An ordinary user finds the same in a user namespace.
    let copy = Copy::make("capabilities");
    let mut command = Command::new(&copy.0);
    let test = "sandbox::capabilities_are_reported_and_leave_the_process_as_it_was";
    let output =
        command.args(["--exact", test, "--nocapture"]).uid(NOBODY).gid(NOBODY).current_dir("/");
    let output = output.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("in a user namespace"), "{text}");
}
