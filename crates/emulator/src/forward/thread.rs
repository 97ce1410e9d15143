//! What makes a thread punctual. All of it is asked for and none of it needed.

#![allow(unsafe_code, reason = "scheduling and memory locking are plain system calls")]

use std::fs::File;
use std::io::Write;

use skybraid_units::Duration;

/// The share of a processor that a deadline task is promised: so much of each period.
const PROMISED: Duration = Duration::from_micros(800);
const PERIOD: Duration = Duration::from_micros(1000);
/// `SCHED_DEADLINE`, and the flag by which it may use what others leave, of linux/sched.h.
const SCHED_DEADLINE: u32 = 6;
const RECLAIM: u64 = 2;
/// Priority among real-time threads; any comes before all ordinary ones.
const PRIORITY: libc::c_int = 10;
/// That of the hosts, who come after the links.
const PRIORITY_OF_HOSTS: libc::c_int = 5;

/// `struct sched_attr` of linux/sched/types.h, first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Makes the calling thread's timers exact and its memory stay.
pub(super) fn prepare() {
    // SAFETY: no pointers are involved.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: no pointers are involved.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
}

/// How the calling thread comes before others: as a real-time thread while it has little to do, since
/// that is the cheapest; as a deadline task when it keeps a processor busy, since a busy real-time
/// thread has to stand aside for 50 ms of each second, so that ordinary threads do not starve.
pub(super) struct Precedence {
    busy: bool,
    cpu: Duration,
}

impl Precedence {
    /// That of a thread with little to do.
    pub fn new() -> Self {
        become_real_time();
        Self { busy: false, cpu: cpu_time() }
    }

    /// Looks at what the thread did in the time since the last look.
    pub fn review(&mut self, since: Duration) {
        let cpu = cpu_time();
        let used = cpu - std::mem::replace(&mut self.cpu, cpu);
        if !self.busy && used > since / 2 {
            self.busy = become_deadline_task();
        } else if self.busy && used < since / 3 {
            self.busy = !become_real_time();
        }
    }
}

fn become_real_time() -> bool {
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, PRIORITY)
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: all bytes zero are valid parameters, of which some systems have more than the priority; they
    // outlive the call.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = priority;
        libc::sched_setscheduler(0, policy, &raw const parameters) == 0
    }
}

/// Lets the calling thread, which works for the hosts, come before ordinary ones as long as this lives,
/// so that applications write and read in time on a busy machine.
pub(crate) struct Prompt;

impl Prompt {
    /// From now on.
    pub fn new() -> Self {
        // SAFETY: no pointers are involved.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, PRIORITY_OF_HOSTS);
        Self
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        schedule(libc::SCHED_OTHER, 0);
        // SAFETY: no pointers are involved. Zero is the thread's usual slack.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 0) };
    }
}

fn become_deadline_task() -> bool {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: SCHED_DEADLINE,
        flags: RECLAIM | libc::SCHED_FLAG_RESET_ON_FORK as u64,
        nice: 0,
        priority: 0,
        runtime: PROMISED.as_nanos() as u64,
        deadline: PERIOD.as_nanos() as u64,
        period: PERIOD.as_nanos() as u64,
    };
    // SAFETY: the attributes have the size that they tell and outlive the call.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// Keeps the processors from sleeping, out of which they are slow to come, as long as the file is open
/// (the kernel's `Documentation/power/pm_qos_interface.rst`); `None` if that is not permitted.
pub(super) fn keep_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    // The greatest latency that is borne, in µs.
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// Lets other threads of this processor work for a moment, kernel threads above all.
pub(super) fn rest(span: Duration) {
    std::thread::sleep(std::time::Duration::from_nanos(span.as_nanos().max(0) as u64));
}

/// Processor time of the calling thread.
pub(super) fn cpu_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    let time =
        nix::time::clock_gettime(clock).map(|time| time.tv_sec() * 1_000_000_000 + time.tv_nsec());
    Duration::from_nanos(time.unwrap_or(0))
}
