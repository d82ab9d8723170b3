//! The binary: parses flags, dispatches, and turns a failure into one line and an exit code.

use std::process::ExitCode;

use routewright::cli::{self, Command, Failure};

// glibc keeps what a relist needed for a moment.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let result = cli::parse(std::env::args_os()).and_then(|cli| match cli.command {
        Command::Run(args) => runtime().and_then(|runtime| runtime.block_on(cli::run::run(*args))),
        Command::Cleanup(args) => runtime().and_then(|runtime| runtime.block_on(cli::cleanup::run(args))),
        Command::Crds => cli::crds::print(),
        Command::Version => {
            cli::version();
            Ok(())
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            cli::complain(&failure);
            ExitCode::from(failure.code)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other(format!("runtime: {error}")))
}
