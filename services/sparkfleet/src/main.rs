//! The `sparkfleet` program: parses its arguments, starts the runtime, calls the library, exits with a documented code.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// What a service keeps for long lies between buffers of births and of git that it needs for a moment. glibc's allocator does not use their room again.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let arguments = match sparkfleet::arguments::Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => return service_runtime::exit::report(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return service_runtime::exit::report(&anyhow::Error::new(error).context("cannot start the runtime"));
        }
    };
    sparkfleet_cli::output::colour::detect();
    match runtime.block_on(sparkfleet::run(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => service_runtime::exit::report(&error),
    }
}
