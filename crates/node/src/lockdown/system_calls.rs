//! System calls permitted to a gateway (seccomp): those for sockets, devices, files, timers and threads. All
//! others fail with EPERM, including those that start programs and processes.

/// Installs the filter for this thread and its future children.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn filter() -> Result<(), String> {
    Err("not on this kind of processor".to_string())
}

/// Installs the filter for this thread and its future children.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn filter() -> Result<(), String> {
    x64::filter().map_err(|error| error.to_string())
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod x64 {
    use std::collections::BTreeMap;

    use seccompiler::{
        BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
        SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
    };

    /// Permitted with any arguments.
    const ALLOWED: &[libc::c_long] = &[
        // Descriptors and files.
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_close,
        libc::SYS_openat,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_statfs,
        libc::SYS_fstatfs,
        libc::SYS_lseek,
        libc::SYS_getdents64,
        libc::SYS_getcwd,
        libc::SYS_readlinkat,
        libc::SYS_faccessat,
        libc::SYS_faccessat2,
        libc::SYS_mkdirat,
        libc::SYS_unlinkat,
        libc::SYS_ftruncate,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_flock,
        libc::SYS_fcntl,
        libc::SYS_dup,
        libc::SYS_dup3,
        libc::SYS_pipe2,
        libc::SYS_umask,
        // Sockets.
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_shutdown,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_setsockopt,
        libc::SYS_getsockopt,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        // Waiting and time.
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_create1,
        libc::SYS_epoll_ctl,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_eventfd2,
        libc::SYS_signalfd4,
        libc::SYS_timerfd_create,
        libc::SYS_timerfd_settime,
        libc::SYS_timerfd_gettime,
        libc::SYS_clock_gettime,
        libc::SYS_clock_getres,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_gettimeofday,
        libc::SYS_restart_syscall,
        // Memory.
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_membarrier,
        // Threads, and signals to the process itself.
        libc::SYS_futex,
        libc::SYS_set_robust_list,
        libc::SYS_get_robust_list,
        libc::SYS_set_tid_address,
        libc::SYS_rseq,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_exit,
        libc::SYS_exit_group,
        // Identity and properties of the process.
        libc::SYS_getpid,
        libc::SYS_getppid,
        libc::SYS_gettid,
        libc::SYS_getuid,
        libc::SYS_geteuid,
        libc::SYS_getgid,
        libc::SYS_getegid,
        libc::SYS_uname,
        libc::SYS_sysinfo,
        libc::SYS_getrandom,
        libc::SYS_getrusage,
        libc::SYS_capget,
    ];

    /// System calls that only older processors' tables have.
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[libc::c_long] = &[
        libc::SYS_open,
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_access,
        libc::SYS_readlink,
        libc::SYS_mkdir,
        libc::SYS_unlink,
        libc::SYS_dup2,
        libc::SYS_pipe,
        libc::SYS_poll,
        libc::SYS_select,
        libc::SYS_epoll_create,
        libc::SYS_epoll_wait,
        libc::SYS_time,
        libc::SYS_getrlimit,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[libc::c_long] = &[];

    /// Permitted socket families: network, kernel settings, and systemd.
    const FAMILIES: [libc::c_int; 4] =
        [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_UNIX];
    /// `TIOCSTI` and `TIOCLINUX`, which write to another terminal (ioctl_tty(2)).
    const TERMINALS: [u64; 2] = [0x5412, 0x541c];

    fn when(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
    }

    /// Installs the filters.
    pub(super) fn filter() -> Result<(), Error> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for number in ALLOWED.iter().chain(OLDER) {
            rules.insert(*number, Vec::new());
        }
        let mut sockets = Vec::new();
        for family in FAMILIES {
            let is_family = when(0, SeccompCmpOp::Eq, family as u64)?;
            sockets.push(SeccompRule::new(vec![is_family])?);
        }
        rules.insert(libc::SYS_socket, sockets.clone());
        rules.insert(libc::SYS_socketpair, sockets);
        let others = TERMINALS.iter().map(|request| when(1, SeccompCmpOp::Ne, *request));
        let others = SeccompRule::new(others.collect::<Result<_, _>>()?)?;
        rules.insert(libc::SYS_ioctl, vec![others]);
        // Threads, but no processes or namespaces.
        let thread = libc::CLONE_THREAD as u64;
        let spaces = libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET;
        let is_thread = SeccompCmpOp::MaskedEq(thread | spaces as u64);
        let is_thread = SeccompRule::new(vec![when(0, is_thread, thread)?])?;
        rules.insert(libc::SYS_clone, vec![is_thread]);
        // Refused by the second filter.
        rules.insert(libc::SYS_clone3, Vec::new());
        // Thread names, and requests of a memory allocator.
        let prctl = [libc::PR_SET_NAME, libc::PR_SET_VMA, libc::PR_GET_DUMPABLE];
        let prctl = prctl
            .iter()
            .map(|which| SeccompRule::new(vec![when(0, SeccompCmpOp::Eq, *which as u64)?]));
        rules.insert(libc::SYS_prctl, prctl.collect::<Result<_, _>>()?);
        // Limits are read but not set.
        let reads = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
        rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![reads])?]);
        // Only signals to the process itself: those of an abort.
        let own = when(0, SeccompCmpOp::Eq, std::process::id().into())?;
        rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![own])?]);

        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let architecture = std::env::consts::ARCH.try_into()?;
        let allowed = SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture)?;
        // The flags of clone3 are behind a pointer; if it is missing, libraries use `clone`.
        let clone3 = SeccompFilter::new(
            BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSYS as u32),
            architecture,
        )?;
        let programs: [BpfProgram; 2] = [clone3.try_into()?, allowed.try_into()?];
        // The first filter must still permit the call that installs the second.
        programs.iter().try_for_each(|program| apply_filter(program))
    }
}
