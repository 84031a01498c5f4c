//! A reader of GGUF headers without unsafe code, for adapters and their base models, which are checked before llama.cpp's
//! parser reads them. `super::super::gguf` reads the headers of models that llama.cpp has loaded.
//!
//! Layout: magic, version, number of tensors, number of key-value pairs, the pairs, name, shape, type and offset of each
//! tensor, padding, the tensors' data. All numbers are little endian. Every length is checked against the rest of the
//! file before anything of that length is read or allocated.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Versions that llama.cpp reads.
const VERSIONS: [u32; 2] = [2, 3];
/// Default alignment of tensor data (GGUF_DEFAULT_ALIGNMENT), without `general.alignment`.
const ALIGNMENT: u64 = 32;
/// Most bytes of a key and of a stored text. Longer texts, such as chat templates, are skipped.
const LONGEST_TEXT: u64 = 4096;
/// Most dimensions of a tensor (GGML_MAX_DIMS).
const MOST_DIMENSIONS: u32 = 4;

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Float(f32),
    Number(u32),
    /// An unsigned integer of 16 bits.
    Short(u16),
    /// A type that no check needs.
    Other,
}

/// The header's entry for a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub name: String,
    /// Dimensions, row length first.
    pub shape: Vec<u64>,
    /// ggml's type number.
    pub kind: u32,
    /// Offset of its data in the file.
    pub start: u64,
}

/// The header of a file whose content is not trusted.
#[derive(Debug)]
pub(super) struct UntrustedHeader {
    pub values: HashMap<String, Value>,
    pub tensors: Vec<Tensor>,
    /// Size of the file.
    pub bytes: u64,
}

struct Source {
    file: BufReader<File>,
    at: u64,
    bytes: u64,
}

impl Source {
    fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        Ok(Self { file: BufReader::new(file), at: 0, bytes })
    }

    /// Skips `count` bytes of the file.
    fn advance(&mut self, count: u64) -> Result<(), String> {
        match self.at.checked_add(count) {
            Some(end) if end <= self.bytes => self.at = end,
            _ => return Err(format!("the file ends inside its header, after {} bytes", self.bytes)),
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.advance(N as u64)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    fn skip(&mut self, count: u64) -> Result<(), String> {
        self.advance(count)?;
        let count = i64::try_from(count).map_err(|error| error.to_string())?;
        self.file.seek_relative(count).map_err(|error| error.to_string())
    }

    fn number(&mut self) -> Result<u32, String> {
        self.take().map(u32::from_le_bytes)
    }

    fn length(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }

    /// A text of at most [`LONGEST_TEXT`] bytes; `None` for a longer one, which is skipped.
    fn text(&mut self) -> Result<Option<String>, String> {
        let length = self.length()?;
        if length > LONGEST_TEXT {
            self.skip(length)?;
            return Ok(None);
        }
        self.advance(length)?;
        let mut bytes = Vec::new();
        (&mut self.file).take(length).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn name(&mut self) -> Result<String, String> {
        self.text()?.ok_or_else(|| format!("a name of its header has more than {LONGEST_TEXT} bytes"))
    }

    fn value(&mut self) -> Result<Value, String> {
        let kind = self.number()?;
        match kind {
            2 => return self.take().map(|bytes| Value::Short(u16::from_le_bytes(bytes))),
            4 => return self.number().map(Value::Number),
            6 => return self.take().map(|bytes| Value::Float(f32::from_le_bytes(bytes))),
            8 => return Ok(self.text()?.map_or(Value::Other, Value::Text)),
            9 => self.pass_list()?,
            _ => self.skip(size(kind)?)?,
        }
        Ok(Value::Other)
    }

    fn pass_list(&mut self) -> Result<(), String> {
        let (kind, count) = (self.number()?, self.length()?);
        if kind == 8 {
            // Each value takes at least eight bytes, so a wrong count ends at the end of the file.
            for _ in 0..count {
                let length = self.length()?;
                self.skip(length)?;
            }
            return Ok(());
        }
        let bytes = count.checked_mul(size(kind)?).ok_or("a list of its header is longer than 2^64 bytes")?;
        self.skip(bytes)
    }

    fn tensor(&mut self) -> Result<Tensor, String> {
        let (name, dimensions) = (self.name()?, self.number()?);
        if dimensions == 0 || dimensions > MOST_DIMENSIONS {
            return Err(format!("tensor {name:?} has {dimensions} dimensions, 1 to {MOST_DIMENSIONS} allowed"));
        }
        let shape = (0..dimensions).map(|_| self.length()).collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor { name, shape, kind: self.number()?, start: self.length()? })
    }
}

/// Bytes of a value of one of the plain types.
fn size(kind: u32) -> Result<u64, String> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        other => Err(format!("its header has a value of the unknown type {other}")),
    }
}

impl UntrustedHeader {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// Describes why it is not the header of a GGUF file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let mut source = Source::open(path)?;
        if source.take::<4>().ok() != Some(*b"GGUF") {
            return Err("not a GGUF file".to_owned());
        }
        let version = source.number()?;
        if !VERSIONS.contains(&version) {
            return Err(format!("GGUF version {version}: 2 or 3 expected"));
        }
        let (tensor_count, value_count) = (source.length()?, source.length()?);
        let mut values = HashMap::new();
        for _ in 0..value_count {
            let key = source.name()?;
            let value = source.value()?;
            if values.insert(key.clone(), value).is_some() {
                return Err(format!("the key {key} occurs twice"));
            }
        }
        let mut tensors = Vec::new();
        for _ in 0..tensor_count {
            tensors.push(source.tensor()?);
        }
        let alignment = match values.get("general.alignment") {
            None => ALIGNMENT,
            Some(Value::Number(alignment)) if alignment.is_power_of_two() => u64::from(*alignment),
            Some(_) => return Err("general.alignment is not a power of two".to_owned()),
        };
        let data = source.at.next_multiple_of(alignment);
        for tensor in &mut tensors {
            let start = data.checked_add(tensor.start);
            tensor.start = start.ok_or_else(|| format!("tensor {:?} starts beyond 2^64 bytes", tensor.name))?;
        }
        Ok(Self { values, tensors, bytes: source.bytes })
    }

    /// A text of the metadata.
    ///
    /// # Errors
    /// The key is missing, or its value is not a short text.
    pub fn text(&self, key: &str) -> Result<&str, String> {
        match self.values.get(key) {
            Some(Value::Text(text)) => Ok(text),
            Some(_) => Err(format!("{key} is not a short text")),
            None => Err(format!("it has no {key}")),
        }
    }
}
