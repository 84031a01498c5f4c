//! Compiles the protocol without protoc, and keeps its descriptors for reflection.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // llama.cpp's shared libraries lie beside the binary wherever that is installed. The old tag holds for what these libraries
    // need themselves, too.
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if linux && std::env::var_os("CARGO_FEATURE_PORTABLE").is_some() {
        println!("cargo:rustc-link-arg-bins=-Wl,--disable-new-dtags,-rpath,$ORIGIN");
    }
    let files = [
        "proto/rerankd/v1/rerank.proto",
        "proto/rerankd/v1/task.proto",
        "proto/rerankd/v1/citation.proto",
        "proto/rerankd/v1/model.proto",
        "proto/rerankd/v1/belief.proto",
        "proto/rerankd/v1/utility.proto",
        "proto/rerankd/v1/metrics.proto",
        "proto/tei/v1/tei.proto",
    ];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    let bytes = prost::Message::encode_to_vec(&descriptors);
    let target = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&target).join("rerankd.bin"), bytes)?;
    // Requests are counted before they are decoded (src/rpc/codec.rs), by the shape that their name stands for.
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        .codec_path("crate::rpc::codec::CountingCodec")
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
