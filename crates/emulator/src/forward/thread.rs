//! Real-time settings of a thread. All are requested, none is required.

#![allow(unsafe_code, reason = "scheduling and memory locking are plain system calls")]

use std::fs::File;
use std::io::Write;

use skybraid_units::Duration;

/// Runtime reserved for a deadline task in each period.
const RUNTIME: Duration = Duration::from_micros(800);
const PERIOD: Duration = Duration::from_micros(1000);
/// `SCHED_DEADLINE`, and the flag to reclaim unused bandwidth of other tasks, of linux/sched.h.
const SCHED_DEADLINE: u32 = 6;
const RECLAIM: u64 = 2;
/// Real-time priority; any precedes all ordinary threads.
const PRIORITY: libc::c_int = 10;
/// Real-time priority of the hosts, below the links.
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

/// Makes the calling thread's timers exact and locks its memory.
pub(super) fn prepare() {
    // SAFETY: no pointers are involved.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: no pointers are involved.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
}

/// Scheduling policy of the calling thread: real-time while its load is low, since that is the cheapest;
/// deadline task if it keeps a processor busy, since a busy real-time thread is throttled for 50 ms of each
/// second, so that ordinary threads do not starve.
pub(super) struct Precedence {
    busy: bool,
    cpu: Duration,
}

impl Precedence {
    /// Creates the policy of a thread with low load.
    pub fn new() -> Self {
        become_real_time();
        Self { busy: false, cpu: cpu_time() }
    }

    /// Updates the policy from the thread's load since the last review.
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
    // SAFETY: all zeros are valid parameters, of which some systems have more than the priority; they outlive
    // the call.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = priority;
        libc::sched_setscheduler(0, policy, &raw const parameters) == 0
    }
}

/// Raises the priority of the calling thread, which works for the hosts, above ordinary threads until
/// dropped, so that applications read and write on time on a busy machine.
pub(crate) struct Prompt;

impl Prompt {
    /// Raises the priority.
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
        // SAFETY: no pointers are involved. Zero restores the thread's default slack.
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
        runtime: RUNTIME.as_nanos() as u64,
        deadline: PERIOD.as_nanos() as u64,
        period: PERIOD.as_nanos() as u64,
    };
    // SAFETY: the attributes have the size that they state and outlive the call.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// Keeps the processors out of deep sleep states, which they leave slowly, as long as the file is open (the
/// kernel's `Documentation/power/pm_qos_interface.rst`); returns `None` if not permitted.
pub(super) fn keep_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    // Maximum tolerated latency in µs.
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// Yields the processor to other threads for a moment, mainly kernel threads.
pub(super) fn rest(span: Duration) {
    std::thread::sleep(std::time::Duration::from_nanos(span.as_nanos().max(0) as u64));
}

/// Returns the processor time of the calling thread.
pub(super) fn cpu_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    let time =
        nix::time::clock_gettime(clock).map(|time| time.tv_sec() * 1_000_000_000 + time.tv_nsec());
    Duration::from_nanos(time.unwrap_or(0))
}
