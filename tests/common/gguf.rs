//! Writes small GGUF files: metadata and tensors of F32.
#![allow(dead_code, clippy::cast_precision_loss, reason = "every test file uses its own part; its numbers are small")]

/// A value of the metadata.
#[derive(Clone)]
pub enum Value {
    Text(String),
    Float(f32),
    Number(u32),
    Short(u16),
    Numbers(Vec<u32>),
    Texts(Vec<String>),
}

/// A tensor: name, dimensions (row length first), numbers.
pub type Tensor = (String, Vec<u64>, Vec<f32>);

/// A text value.
pub fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// The bytes of a file.
pub fn bytes(values: &[(&str, Value)], tensors: &[Tensor]) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((values.len() as u64).to_le_bytes());
    for (key, value) in values {
        put_text(&mut bytes, key);
        put_value(&mut bytes, value);
    }
    let mut offset = 0_u64;
    for (name, shape, numbers) in tensors {
        put_text(&mut bytes, name);
        bytes.extend(u32::try_from(shape.len()).unwrap().to_le_bytes());
        bytes.extend(shape.iter().flat_map(|length| length.to_le_bytes()));
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        offset += (4 * numbers.len() as u64).next_multiple_of(32);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    for (_, _, numbers) in tensors {
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(32), 0);
    }
    bytes
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => {
            bytes.extend(8_u32.to_le_bytes());
            put_text(bytes, text);
        }
        Value::Float(number) => {
            bytes.extend(6_u32.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        Value::Number(number) => {
            bytes.extend(4_u32.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        Value::Short(number) => {
            bytes.extend(2_u32.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        Value::Numbers(numbers) => {
            bytes.extend([9_u32.to_le_bytes(), 4_u32.to_le_bytes()].concat());
            bytes.extend((numbers.len() as u64).to_le_bytes());
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        Value::Texts(texts) => {
            bytes.extend([9_u32.to_le_bytes(), 8_u32.to_le_bytes()].concat());
            bytes.extend((texts.len() as u64).to_le_bytes());
            for text in texts {
                put_text(bytes, text);
            }
        }
    }
}

/// The metadata of an adapter for an architecture.
pub fn adapter_values(architecture: &str, alpha: f32) -> Vec<(&'static str, Value)> {
    vec![
        ("general.architecture", text(architecture)),
        ("general.type", text("adapter")),
        ("adapter.type", text("lora")),
        ("adapter.lora.alpha", Value::Float(alpha)),
    ]
}

/// The two factors of one matrix, with numbers from a formula.
pub fn factors(matrix: &str, inputs: u64, outputs: u64, rank: u64, size: f32) -> [Tensor; 2] {
    let numbers = |count: u64, start: u64| (start..start + count).map(|n| size * (n as f32 * 1.7).sin()).collect();
    [
        (format!("{matrix}.lora_a"), vec![inputs, rank], numbers(inputs * rank, 0)),
        (format!("{matrix}.lora_b"), vec![rank, outputs], numbers(rank * outputs, 1_000)),
    ]
}
