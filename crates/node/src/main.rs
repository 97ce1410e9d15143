//! `skybraid-node`: the gateway daemon of an aircraft or a ground station, and its tools.
#![forbid(unsafe_code)]

mod commands;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::error::{self, NodeError};
use commands::{check, doctor, gateway, keys, status};

/// Carries MAVLink, video and IP traffic between an aircraft and its ground station over several
/// networks at once.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway until SIGTERM or Ctrl-C.
    Gateway {
        /// Configuration file of the gateway.
        file: PathBuf,
        /// Keep all privileges, files and system calls instead of locking the process down.
        #[arg(long)]
        keep_privileges: bool,
    },
    /// Check a gateway's file and describe the gateway. Exit code 2: the file is invalid.
    Check {
        /// Configuration file of the gateway.
        file: PathBuf,
    },
    /// Create a private key, and print the public key and the line for the other end's file.
    Keygen {
        /// File for the private key; an existing file is kept.
        #[arg(default_value = "skybraid.key")]
        file: PathBuf,
    },
    /// Create a key that both ends share, for `psk`.
    Genpsk {
        /// File for the key; an existing file is kept.
        #[arg(default_value = "skybraid.psk")]
        file: PathBuf,
    },
    /// Print the public key of a private key.
    Pubkey {
        /// Private key file.
        file: PathBuf,
    },
    /// Show the state of a running gateway. Exit code 1: no session or no path; 2: no gateway answers.
    Status {
        /// The gateway's file, which has the address of its status page.
        #[arg(conflicts_with = "url")]
        file: Option<PathBuf>,
        /// Address of its status page: `http://HOST:PORT` or `HOST:PORT`.
        #[arg(long, default_value = status::DEFAULT_ADDRESS)]
        url: String,
        /// Print the whole state as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check this machine and show how to fix what is missing.
    Doctor,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "skybraid-node: {error}");
            error.code()
        }
    }
}

fn run(command: &Command) -> Result<ExitCode, NodeError> {
    match command {
        Command::Gateway { file, keep_privileges } => gateway::run(file, *keep_privileges),
        Command::Check { file } => show(&check::check(file)?),
        Command::Keygen { file } => show(&keys::keygen(file)?),
        Command::Genpsk { file } => show(&keys::genpsk(file)?),
        Command::Pubkey { file } => show(&format!("{}\n", keys::public(file)?)),
        Command::Status { file, url, json } => {
            let (text, up) = status::status(file.as_deref(), url, *json)?;
            show(&text)?;
            Ok(if up { ExitCode::SUCCESS } else { error::FAILED.into() })
        }
        Command::Doctor => {
            let (text, sufficient) = doctor::doctor();
            show(&text)?;
            Ok(if sufficient { ExitCode::SUCCESS } else { error::FAILED.into() })
        }
    }
}

/// Prints `text`. A closed pipe is not an error.
fn show(text: &str) -> Result<ExitCode, NodeError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(NodeError::File { file: "standard output".to_string(), error })
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
