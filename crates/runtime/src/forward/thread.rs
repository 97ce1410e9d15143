//! What makes a thread punctual. All of it is asked for and none of it needed.

#![allow(unsafe_code, reason = "scheduling and memory locking are plain system calls")]

use std::fs::File;
use std::io::Write;

use skybraid_units::Duration;

/// Priority among the real-time threads; the lowest is enough to come before all others.
const PRIORITY: libc::c_int = 10;

/// Makes the calling thread a real-time thread, its timers exact and its memory stay.
pub(super) fn prepare() {
    // SAFETY: no pointers are involved.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the parameters outlive the call.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters)
    };
    // SAFETY: no pointers are involved.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
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
