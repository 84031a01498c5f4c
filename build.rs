//! Compiles the protocol without protoc, and keeps its descriptors for reflection.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "proto/rerankd/v1/rerank.proto",
        "proto/rerankd/v1/model.proto",
        "proto/rerankd/v1/belief.proto",
        "proto/rerankd/v1/utility.proto",
        "proto/rerankd/v1/metrics.proto",
    ];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    let bytes = prost::Message::encode_to_vec(&descriptors);
    let target = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&target).join("rerankd.bin"), bytes)?;
    // Requests are counted before they are decoded (src/rpc/codec.rs).
    tonic_prost_build::configure().codec_path("crate::rpc::codec::CountingCodec").compile_fds(descriptors)?;
    Ok(())
}
