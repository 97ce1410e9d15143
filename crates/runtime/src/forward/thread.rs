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

/// Makes the calling thread come before others, its timers exact and its memory stay.
///
/// A deadline task comes first, since it is the only kind that others cannot hold up: a busy real-time
/// thread stands aside for 50 ms of each second, so that ordinary threads do not starve.
pub(super) fn prepare() {
    // SAFETY: no pointers are involved.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    if !become_deadline_task() {
        let parameters = libc::sched_param { sched_priority: PRIORITY };
        let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        // SAFETY: the parameters outlive the call.
        unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    }
    // SAFETY: no pointers are involved.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
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
