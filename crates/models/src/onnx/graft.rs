//! Adds the three-class head of models/nli to the default network.
//!
//! The published network has a fixed input length and a head for another task. The inputs are replaced by inputs of any
//! length, the outputs are removed, and two linear layers with a ReLU between them are appended to the pooled output. Only
//! these parts of the file are parsed; all other bytes are copied. An ONNX file is a protocol buffer: a sequence of fields,
//! each a key and, for the fields of interest, a length and that many bytes.

use serde::Deserialize;

/// Description of the head, from models/nli/head.json.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Head {
    /// The tensor of the network that the head reads.
    input: String,
    /// Width of that tensor.
    width: usize,
    /// Width of the hidden layer.
    hidden: usize,
    /// The labels, in the order of the outputs.
    pub labels: Vec<String>,
    /// SHA-256 of the network that the head was trained on, lower-case hexadecimal.
    pub network_sha256: String,
}

const OUTPUT: &str = "rerankd_nli_logits";

// Field numbers of onnx.proto.
pub(super) const MODEL_GRAPH: u64 = 7;
const GRAPH_NODE: u64 = 1;
pub(super) const GRAPH_INITIALIZER: u64 = 5;
const GRAPH_INPUT: u64 = 11;
const GRAPH_OUTPUT: u64 = 12;
const FLOAT: u64 = 1;
const INT64: u64 = 7;

/// The head that is compiled into the program, with its weights in the order w1, b1, w2, b2.
///
/// # Errors
/// The embedded files do not match; a test ensures that they do.
pub fn built_in() -> Result<(Head, Vec<f32>), String> {
    let head: Head =
        serde_json::from_str(include_str!("../../../../models/nli/head.json")).map_err(|error| error.to_string())?;
    let bytes = include_bytes!("../../../../models/nli/head.f32");
    let weights: Vec<f32> =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
    let classes = head.labels.len();
    let expected = (head.width + 1) * head.hidden + (head.hidden + 1) * classes;
    if weights.len() != expected {
        return Err(format!("head.f32: {} numbers given, head.json requires {expected}", weights.len()));
    }
    Ok((head, weights))
}

/// Returns the network with the head instead of its outputs.
///
/// # Errors
/// `network` is not an ONNX model.
pub fn graft(network: &[u8], head: &Head, weights: &[f32]) -> Result<Vec<u8>, String> {
    let mut model = Vec::with_capacity(network.len() + 4 * weights.len() + 4096);
    let mut grafted = false;
    for field in fields(network) {
        let field = field?;
        match field.body {
            Some(graph) if field.number == MODEL_GRAPH => {
                put_bytes(&mut model, MODEL_GRAPH, &with_head(graph, head, weights)?);
                grafted = true;
            }
            _ => model.extend_from_slice(field.whole),
        }
    }
    if grafted { Ok(model) } else { Err("not an ONNX model: the file has no graph".to_owned()) }
}

fn with_head(graph: &[u8], head: &Head, weights: &[f32]) -> Result<Vec<u8>, String> {
    let mut made = Vec::with_capacity(graph.len() + 4 * weights.len() + 4096);
    for field in fields(graph) {
        let field = field?;
        if field.number != GRAPH_INPUT && field.number != GRAPH_OUTPUT {
            made.extend_from_slice(field.whole);
        }
    }
    let (classes, batch) = (head.labels.len(), Dimension::Named("batch"));
    for name in ["input_ids", "attention_mask"] {
        put_bytes(&mut made, GRAPH_INPUT, &value(name, INT64, &[batch, Dimension::Named("tokens")]));
    }
    put_bytes(&mut made, GRAPH_OUTPUT, &value(OUTPUT, FLOAT, &[batch, Dimension::Fixed(classes)]));
    let shapes: [(&str, Vec<usize>); 4] = [
        ("rerankd_w1", vec![head.width, head.hidden]),
        ("rerankd_b1", vec![head.hidden]),
        ("rerankd_w2", vec![head.hidden, classes]),
        ("rerankd_b2", vec![classes]),
    ];
    let mut rest = weights;
    for (name, shape) in &shapes {
        let (these, after) = rest.split_at(shape.iter().product());
        put_bytes(&mut made, GRAPH_INITIALIZER, &tensor(name, shape, these));
        rest = after;
    }
    for node in [
        node("Gemm", &[&head.input, "rerankd_w1", "rerankd_b1"], "rerankd_sum"),
        node("Relu", &["rerankd_sum"], "rerankd_hidden"),
        node("Gemm", &["rerankd_hidden", "rerankd_w2", "rerankd_b2"], OUTPUT),
    ] {
        put_bytes(&mut made, GRAPH_NODE, &node);
    }
    Ok(made)
}

#[derive(Clone, Copy)]
enum Dimension<'a> {
    Fixed(usize),
    Named(&'a str),
}

/// A ValueInfoProto: name (1) and type (2). The type holds a tensor type (1) with element type (1) and shape (2). The shape
/// holds dimensions (1), each a value (1) or a parameter (2).
fn value(name: &str, element: u64, shape: &[Dimension]) -> Vec<u8> {
    let mut dimensions = Vec::new();
    for dimension in shape {
        let mut one = Vec::new();
        match dimension {
            Dimension::Fixed(size) => put_number(&mut one, 1, *size as u64),
            Dimension::Named(name) => put_bytes(&mut one, 2, name.as_bytes()),
        }
        put_bytes(&mut dimensions, 1, &one);
    }
    let mut tensor = Vec::new();
    put_number(&mut tensor, 1, element);
    put_bytes(&mut tensor, 2, &dimensions);
    let mut kind = Vec::new();
    put_bytes(&mut kind, 1, &tensor);
    let mut made = Vec::new();
    put_bytes(&mut made, 1, name.as_bytes());
    put_bytes(&mut made, 2, &kind);
    made
}

/// A TensorProto: dims (1), data type (2), name (8), raw data (9).
pub(super) fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Vec<u8> {
    let mut made = Vec::new();
    for &size in shape {
        put_number(&mut made, 1, size as u64);
    }
    put_number(&mut made, 2, FLOAT);
    put_bytes(&mut made, 8, name.as_bytes());
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    put_bytes(&mut made, 9, &raw);
    made
}

/// A NodeProto: inputs (1), outputs (2), name (3), operator (4).
fn node(operator: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let mut made = Vec::new();
    for input in inputs {
        put_bytes(&mut made, 1, input.as_bytes());
    }
    put_bytes(&mut made, 2, output.as_bytes());
    put_bytes(&mut made, 3, output.as_bytes());
    put_bytes(&mut made, 4, operator.as_bytes());
    made
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3);
    put_varint(out, number);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) struct Field<'a> {
    number: u64,
    /// The content of a length-delimited field.
    body: Option<&'a [u8]>,
    /// Key, length and content.
    pub whole: &'a [u8],
}

impl<'a> Field<'a> {
    /// The content of a field with this number.
    pub fn body_of(&self, number: u64) -> Option<&'a [u8]> {
        self.body.filter(|_| self.number == number)
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, index + 1));
        }
    }
    None
}

/// Iterates over the fields of a message. Ends after the first error.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, String>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let parsed = field(rest);
        rest = parsed.as_ref().map_or(&[], |field| &rest[field.whole.len()..]);
        Some(parsed.ok_or_else(|| "not an ONNX model: the file is not a protocol buffer".to_owned()))
    })
}

fn field(bytes: &[u8]) -> Option<Field<'_>> {
    let (key, start) = varint(bytes)?;
    let (body, end) = match key & 7 {
        0 => (None, start + varint(&bytes[start..])?.1),
        1 => (None, start + 8),
        2 => {
            let (length, used) = varint(&bytes[start..])?;
            let from = start + used;
            let to = from.checked_add(usize::try_from(length).ok()?)?;
            (Some(bytes.get(from..to)?), to)
        }
        5 => (None, start + 4),
        _ => return None,
    };
    Some(Field { number: key >> 3, body, whole: bytes.get(..end)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_head_is_complete() {
        let (head, weights) = built_in().unwrap();
        assert_eq!(head.labels, ["entailment", "neutral", "contradiction"]);
        assert!(weights.iter().all(|weight| weight.is_finite()));
    }

    #[test]
    fn only_inputs_and_outputs_are_replaced() {
        let (head, weights) = built_in().unwrap();
        let mut graph = Vec::new();
        put_bytes(&mut graph, GRAPH_NODE, &node("Erf", &["a"], &head.input));
        put_bytes(&mut graph, GRAPH_INPUT, &value("input_ids", INT64, &[Dimension::Fixed(160)]));
        put_bytes(&mut graph, GRAPH_OUTPUT, &value("logits", FLOAT, &[Dimension::Fixed(2)]));
        let mut model = Vec::new();
        put_number(&mut model, 1, 7);
        put_bytes(&mut model, MODEL_GRAPH, &graph);
        put_bytes(&mut model, 2, b"somebody");
        let made = graft(&model, &head, &weights).unwrap();
        let top: Vec<u64> = fields(&made).map(|field| field.unwrap().number).collect();
        assert_eq!(top, vec![1, 7, 2]);
        let inner = fields(&made).find_map(|field| field.unwrap().body).unwrap().to_vec();
        let count = |number| fields(&inner).filter(|field| field.as_ref().unwrap().number == number).count();
        assert_eq!([GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT].map(count), [4, 4, 2, 1]);
    }

    #[test]
    fn other_files_are_an_error() {
        let (head, weights) = built_in().unwrap();
        for bytes in
            [&b""[..], b"hello, this is text", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x3a\xff\x01x"]
        {
            assert!(graft(bytes, &head, &weights).unwrap_err().contains("not an ONNX model"));
        }
    }
}
