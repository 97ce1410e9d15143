//! Serial devices: raw, 8 data bits, no parity, one stop bit, no flow control.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::OFlag;
use nix::sys::termios::{
    BaudRate, ControlFlags, FlushArg, SetArg, cfmakeraw, cfsetspeed, tcflush, tcgetattr, tcsetattr,
};

/// Default baud rate: that of telemetry radios, expected by autopilots.
pub const DEFAULT_BAUD: u32 = 57_600;

const BAUDS: &[(u32, BaudRate)] = &[
    (1200, BaudRate::B1200),
    (2400, BaudRate::B2400),
    (4800, BaudRate::B4800),
    (9600, BaudRate::B9600),
    (19_200, BaudRate::B19200),
    (38_400, BaudRate::B38400),
    (57_600, BaudRate::B57600),
    (115_200, BaudRate::B115200),
    (230_400, BaudRate::B230400),
    (460_800, BaudRate::B460800),
    (500_000, BaudRate::B500000),
    (576_000, BaudRate::B576000),
    (921_600, BaudRate::B921600),
    (1_000_000, BaudRate::B1000000),
    (1_152_000, BaudRate::B1152000),
    (1_500_000, BaudRate::B1500000),
    (2_000_000, BaudRate::B2000000),
    (2_500_000, BaudRate::B2500000),
    (3_000_000, BaudRate::B3000000),
    (3_500_000, BaudRate::B3500000),
    (4_000_000, BaudRate::B4000000),
];

/// Returns the constant of a baud rate.
///
/// # Errors
/// The baud rate is not supported; the message lists the supported ones.
pub fn speed(baud: u32) -> io::Result<BaudRate> {
    let found = BAUDS.iter().find(|(known, _)| *known == baud).map(|(_, speed)| *speed);
    found.ok_or_else(|| {
        let known: Vec<String> = BAUDS.iter().map(|(known, _)| known.to_string()).collect();
        let text =
            format!("there is no speed of {baud} baud; expected one of {}", known.join(", "));
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// Opens a device in non-blocking mode, and locks it: of two gateways at one device, each would read a part of
/// the bytes.
///
/// # Errors
/// The device is missing, is no terminal, or is locked by another program, or permissions are missing.
pub fn open(path: &str, speed: BaudRate) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(path)?;
    let mut settings = tcgetattr(&file)?;
    lock(&file)?;
    cfmakeraw(&mut settings);
    settings.control_flags.remove(
        ControlFlags::CSIZE | ControlFlags::PARENB | ControlFlags::CSTOPB | ControlFlags::CRTSCTS,
    );
    settings.control_flags.insert(ControlFlags::CS8 | ControlFlags::CREAD | ControlFlags::CLOCAL);
    cfsetspeed(&mut settings, speed)?;
    tcsetattr(&file, SetArg::TCSANOW, &settings)?;
    // Pending data was received at another baud rate.
    tcflush(&file, FlushArg::TCIOFLUSH)?;
    Ok(file)
}

/// Locks a device until it is closed (flock(2)), as modem managers and terminal programs do.
#[expect(unsafe_code, reason = "the safe wrapper ends the lock before the file is closed")]
fn lock(file: &File) -> io::Result<()> {
    // SAFETY: flock takes numbers, and the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "another program has locked it"))
        }
        _ => Err(error),
    }
}

/// Returns the queue size for a device in bytes: one second, since older data is of no use to a pilot.
pub fn room(baud: u32, max: usize) -> usize {
    (baud as usize / 10).clamp(2048, max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;
    use std::io::{Read, Write};

    #[test]
    fn a_device_is_raw_and_does_not_block() {
        let pty = openpty(None, None).unwrap();
        let path = nix::unistd::ttyname(&pty.slave).unwrap();
        let mut device = open(path.to_str().unwrap(), speed(57_600).unwrap()).unwrap();
        let mut bytes = [0; 300];
        assert_eq!(device.read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let all: Vec<u8> = (0..=255).collect();
        let mut master = File::from(pty.master);
        master.write_all(&all).unwrap();
        let mut got: Vec<u8> = Vec::new();
        while got.len() < 256 {
            let length = device.read(&mut bytes).unwrap_or(0);
            got.extend(&bytes[..length]);
        }
        assert_eq!(got, all);
        device.write_all(&all).unwrap();
        master.read_exact(&mut bytes[..256]).unwrap();
        assert_eq!(bytes[..256], all);
        let settings = tcgetattr(&device).unwrap();
        assert_eq!(nix::sys::termios::cfgetospeed(&settings), BaudRate::B57600);
    }

    #[test]
    fn a_device_serves_one_gateway_at_a_time() {
        let pty = openpty(None, None).unwrap();
        let path = nix::unistd::ttyname(&pty.slave).unwrap();
        let open = || open(path.to_str().unwrap(), BaudRate::B57600);
        let first = open().unwrap();
        assert_eq!(open().unwrap_err().to_string(), "another program has locked it");
        drop(first);
        open().unwrap();
    }

    #[test]
    fn unknown_speeds_and_files_that_are_no_device_are_refused() {
        assert!(speed(57_601).unwrap_err().to_string().contains("57600"));
        let error = open("/dev/null", BaudRate::B57600).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
