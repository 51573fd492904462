//! Rust types of the schemas beside this file, by protox: no `protoc` has to be installed.

use std::error::Error;

const SCHEMAS: [&str; 3] = ["sparkplug_b.proto", "join.proto", "enrol.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    for schema in SCHEMAS {
        println!("cargo:rerun-if-changed={schema}");
    }
    let mut config = prost_build::Config::new();
    // Their messages hold secrets: `names_only` says what Debug shows of them.
    config.skip_debug([".sparkfleet"]);
    config.boxed(".sparkplug_b.Metric.metadata");
    config.compile_fds(protox::compile(SCHEMAS, ["."])?)?;
    Ok(())
}
