//! Compiles the protocol without protoc, and keeps its descriptors for reflection.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "../../proto/rerankd/v1/rerank.proto",
        "../../proto/rerankd/v1/task.proto",
        "../../proto/rerankd/v1/citation.proto",
        "../../proto/rerankd/v1/model.proto",
        "../../proto/rerankd/v1/belief.proto",
        "../../proto/rerankd/v1/utility.proto",
        "../../proto/rerankd/v1/metrics.proto",
        "../../proto/tei/v1/tei.proto",
    ];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["../../proto"])?;
    let bytes = prost::Message::encode_to_vec(&descriptors);
    let target = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&target).join("rerankd.bin"), bytes)?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
