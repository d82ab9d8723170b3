//! The binary: parses flags, dispatches, and turns a failure into one line and an exit code.

use std::process::ExitCode;

use routewright::cli::{self, Command, Failure};

// glibc keeps what a relist needed for a moment.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let result = cli::parse(std::env::args_os()).and_then(|cli| match cli.command {
        Command::Run(args) => done(runtime().and_then(|runtime| runtime.block_on(cli::run::run(*args)))),
        Command::Cleanup(args) => {
            done(runtime().and_then(|runtime| runtime.block_on(cli::cleanup::run(args))))
        }
        Command::Crds => done(cli::crds::print()),
        Command::Translate(args) => cli::translate::run(&args),
        Command::Completions { shell } => {
            cli::completions(shell);
            Ok(0)
        }
        Command::Version => {
            cli::version();
            Ok(0)
        }
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            cli::complain(&failure);
            ExitCode::from(failure.code)
        }
    }
}

/// The exit code of a command that knows only success and failure.
fn done(result: Result<(), Failure>) -> Result<u8, Failure> {
    result.map(|()| 0)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other(format!("runtime: {error}")))
}
