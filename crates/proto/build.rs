//! Turns the files under `proto/` into Rust, without `protoc`.

use std::error::Error;

/// Where the messages are written down.
const ROOT: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={ROOT}");
    let files = protox::compile(["envoy/service/ext_proc/v3/external_processor.proto"], [ROOT])?;
    tonic_prost_build::configure()
        // A body shares the buffer it arrived in.
        .bytes(".")
        // Equal messages encode to equal bytes.
        .btree_map(".")
        .include_file("packages.rs")
        .compile_fds(files)?;
    Ok(())
}
