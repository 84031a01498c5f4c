//! The default embedding model with ONNX Runtime's fused operators.
//!
//! The published file has a node for each step of PyTorch, and converts its 8-bit weights to 32 bits before it multiplies.
//! `models/minilm/nodes.bin` holds nodes that read the same weights and multiply in 8 bits; `models/minilm/fuse.py` writes
//! it. docs/experiments/onnx.md has the speed and the quality.

use memchr::memmem;

use super::graft::{GRAPH_INITIALIZER, MODEL_GRAPH, fields, put_bytes};

/// SHA-256 of the published file.
const NETWORK: &str = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6";
const NODES: &[u8] = include_bytes!("../../../../models/minilm/nodes.bin");

/// Protocol-buffer field number of a tensor's name.
const TENSOR_NAME: u64 = 8;

/// The network with fused operators; `None` for a network without such nodes, and in builds for accelerators, which lack
/// some of the operators.
///
/// # Errors
/// `network` is not an ONNX model.
pub fn fused(network: &[u8], sha256: &str) -> Result<Option<Vec<u8>>, String> {
    let accelerated = cfg!(any(feature = "onnx-cuda", feature = "onnx-tensorrt", feature = "onnx-coreml"));
    if sha256 != NETWORK || accelerated { Ok(None) } else { with_nodes(network).map(Some) }
}

/// The nodes and the tensors of a network that they read. Two messages one after the other are one message with the fields
/// of both.
fn with_nodes(network: &[u8]) -> Result<Vec<u8>, String> {
    let mut weights = Vec::with_capacity(network.len());
    for field in fields(network) {
        let Some(graph) = field?.body_of(MODEL_GRAPH) else { continue };
        for part in fields(graph) {
            let part = part?;
            if part.body_of(GRAPH_INITIALIZER).is_some_and(is_read) {
                weights.extend_from_slice(part.whole);
            }
        }
    }
    let mut model = NODES.to_vec();
    put_bytes(&mut model, MODEL_GRAPH, &weights);
    Ok(model)
}

/// True if the nodes read this tensor.
fn is_read(tensor: &[u8]) -> bool {
    let name = fields(tensor).flatten().find_map(|field| field.body_of(TENSOR_NAME));
    name.is_some_and(|name| memmem::find(NODES, name).is_some())
}

#[cfg(test)]
mod tests {
    use super::super::graft::tensor;
    use super::*;

    #[test]
    fn only_weights_that_the_nodes_read_are_added() {
        let mut graph = Vec::new();
        for name in ["val_49_q", "elsewhere"] {
            put_bytes(&mut graph, GRAPH_INITIALIZER, &tensor(name, &[1], &[0.5]));
        }
        let mut network = Vec::new();
        put_bytes(&mut network, MODEL_GRAPH, &graph);
        let made = with_nodes(&network).unwrap();
        let added = made.strip_prefix(NODES).unwrap();
        let mut expected = Vec::new();
        put_bytes(&mut expected, GRAPH_INITIALIZER, &tensor("val_49_q", &[1], &[0.5]));
        let graphs: Vec<_> = fields(added).map(|field| field.unwrap().body_of(MODEL_GRAPH).unwrap().to_vec()).collect();
        assert_eq!(graphs, [expected]);
    }

    #[test]
    fn the_nodes_belong_to_the_model_of_the_catalogue() {
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        assert_eq!(catalog.find("all-minilm-l6-v2").unwrap().sha256, NETWORK);
    }

    #[test]
    fn other_networks_are_left_alone() {
        assert_eq!(fused(b"hello, this is text", "0"), Ok(None));
        assert!(fused(b"hello, this is text", NETWORK).unwrap_err().contains("not an ONNX model"));
    }
}
