//! Reads the header of a GGUF file: its tensors and lists, and the size of the file after re-encoding. For models
//! that llama.cpp also loads; `super::lora` reads the headers of adapters without its parser.
//!
//! `llama_model_quantize` has a `dry_run` parameter, but it only logs the size. The rules here follow
//! `tensor_allows_quantization` in llama.cpp's src/llama-quant.cpp for targets of 16 bits.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use llama_cpp_sys_2 as sys;

/// Alignment of tensor data in the files that llama.cpp writes (GGUF_DEFAULT_ALIGNMENT).
const ALIGNMENT: u64 = 32;

/// Bytes that re-encoding may add to the header: `general.file_type` and `general.quantization_version`, and padding.
const ADDED: u64 = 128;

/// Bytes of one weight in the target type.
const WEIGHT: u64 = 2;

/// Size in bytes of the file at `path` after re-encoding to BF16 or F16. The real file is at most 128 bytes smaller.
/// llama.cpp does not convert special tensors (convolutions, position embeddings); for architectures with such tensors
/// the figure is off by their size.
///
/// # Errors
/// The file cannot be read, is not a GGUF file, or its header is damaged.
pub fn reencoded_bytes(path: &Path) -> Result<u64, String> {
    let header = Header::read(path)?;
    header.reencoded().ok_or_else(|| "the header is damaged: the tensors are larger than 2^64 bytes".to_owned())
}

/// A parsed header. llama.cpp checks every length in it against the size of the file.
pub(super) struct Header(NonNull<sys::gguf_context>);

#[expect(unsafe_code, reason = "llama-cpp-2 has no wrapper for the tensors of a GGUF header")]
impl Header {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// The file cannot be read, is not a GGUF file, or its header is damaged.
    pub fn read(path: &Path) -> Result<Self, String> {
        if !path.is_file() {
            return Err("no such file".to_owned());
        }
        let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        let params = sys::gguf_init_params { no_alloc: true, ctx: null_mut() };
        // SAFETY: the string outlives the call. Without a `ctx` only the header is read and no tensor is allocated.
        let context = unsafe { sys::gguf_init_from_file(name.as_ptr(), params) };
        NonNull::new(context).map(Self).ok_or_else(|| "not a GGUF file, or its header is damaged".to_owned())
    }

    /// True if the file has a tensor of this name.
    pub fn has(&self, tensor: &str) -> bool {
        let Ok(name) = CString::new(tensor) else { return false };
        // SAFETY: the context is valid until it is dropped, and the string outlives the call.
        unsafe { sys::gguf_find_tensor(self.0.as_ptr(), name.as_ptr()) >= 0 }
    }

    /// A row of a matrix, as numbers; `None` if the file has no such row. `path` is the file of this header.
    ///
    /// # Errors
    /// The file ends before the row, or cannot be read.
    pub fn row(&self, path: &Path, tensor: &str, row: usize) -> Result<Option<Vec<f32>>, String> {
        let Ok(name) = CString::new(tensor) else { return Ok(None) };
        // SAFETY: the context is valid until it is dropped, and the string outlives the call. The other functions get the
        // index of an existing tensor; the shape is copied. The traits of a type are constants.
        let (shape, place, kind, size, to_float) = unsafe {
            let context = self.0.as_ptr();
            let index = sys::gguf_find_tensor(context, name.as_ptr());
            if index < 0 {
                return Ok(None);
            }
            let shape: [i64; 4] = *sys::gguf_get_tensor_ne(context, index).cast();
            let place = (sys::gguf_get_data_offset(context), sys::gguf_get_tensor_offset(context, index));
            let kind = sys::gguf_get_tensor_type(context, index);
            let traits = &*sys::ggml_get_type_traits(kind);
            (shape, place, kind, sys::ggml_row_size(kind, shape[0]), traits.to_float)
        };
        let [width, rows] = [shape[0], shape[1]].map(|length| usize::try_from(length).unwrap_or(0));
        if row >= rows {
            return Ok(None);
        }
        let unread = |error: std::io::Error| format!("{tensor}: {error}");
        let from = [place.1, size.saturating_mul(row)].into_iter().fold(place.0, usize::saturating_add);
        let mut file = File::open(path).map_err(unread)?;
        file.seek(SeekFrom::Start(from as u64)).map_err(unread)?;
        let mut bytes = vec![0; size];
        file.read_exact(&mut bytes).map_err(unread)?;
        if kind == sys::GGML_TYPE_F32 {
            let (numbers, _) = bytes.as_chunks();
            return Ok(Some(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()));
        }
        let Some(to_float) = to_float else { return Err(format!("{tensor}: its type has no numbers")) };
        let mut numbers = vec![0.0; width];
        // SAFETY: the bytes are one row of `width` numbers in this type, and there is room for as many.
        unsafe { to_float(bytes.as_ptr().cast(), numbers.as_mut_ptr(), shape[0]) };
        Ok(Some(numbers))
    }

    /// A list of strings of the metadata; empty if the key is missing.
    pub fn strings(&self, key: &str) -> Vec<String> {
        let Ok(name) = CString::new(key) else { return Vec::new() };
        // SAFETY: the context is valid until it is dropped, and the string outlives the call. The element functions abort the
        // process for another type or index, so both are checked; each string is copied.
        unsafe {
            let context = self.0.as_ptr();
            let index = sys::gguf_find_key(context, name.as_ptr());
            if index < 0
                || sys::gguf_get_kv_type(context, index) != sys::GGUF_TYPE_ARRAY
                || sys::gguf_get_arr_type(context, index) != sys::GGUF_TYPE_STRING
            {
                return Vec::new();
            }
            let string = |at| CStr::from_ptr(sys::gguf_get_arr_str(context, index, at)).to_string_lossy().into_owned();
            (0..sys::gguf_get_arr_n(context, index)).map(string).collect()
        }
    }

    /// Number of files that the model is split into.
    pub fn files(&self) -> u16 {
        // SAFETY: the context is valid until it is dropped. The value function aborts the process for another type or index, so both
        // are checked.
        unsafe {
            let context = self.0.as_ptr();
            let index = sys::gguf_find_key(context, c"split.count".as_ptr());
            let stated = index >= 0 && sys::gguf_get_kv_type(context, index) == sys::GGUF_TYPE_UINT16;
            if stated { sys::gguf_get_val_u16(context, index) } else { 1 }
        }
    }

    fn reencoded(&self) -> Option<u64> {
        // SAFETY: the context is valid until it is dropped; both functions only read it.
        let (tensors, data) =
            unsafe { (sys::gguf_get_n_tensors(self.0.as_ptr()), sys::gguf_get_data_offset(self.0.as_ptr())) };
        let mut total = u64::try_from(data).ok()?.checked_add(ADDED)?;
        for tensor in 0..tensors {
            let bytes = self.tensor_bytes(tensor)?.checked_next_multiple_of(ALIGNMENT)?;
            total = total.checked_add(bytes)?;
        }
        Some(total)
    }

    /// Size of one tensor after re-encoding.
    fn tensor_bytes(&self, tensor: i64) -> Option<u64> {
        // SAFETY: `tensor` is below the number of tensors. The name is a C string and the shape an array of GGML_MAX_DIMS
        // numbers; both belong to the context and are copied or read before it can be dropped.
        let (name, shape, unchanged) = unsafe {
            let context = self.0.as_ptr();
            let shape: [i64; 4] = *sys::gguf_get_tensor_ne(context, tensor).cast();
            let name = CStr::from_ptr(sys::gguf_get_tensor_name(context, tensor)).to_string_lossy();
            (name, shape, sys::gguf_get_tensor_size(context, tensor))
        };
        if !is_reencoded(&name, &shape) {
            return u64::try_from(unchanged).ok();
        }
        shape.iter().try_fold(WEIGHT, |bytes, &length| bytes.checked_mul(u64::try_from(length).ok()?))
    }
}

#[expect(unsafe_code, reason = "the context belongs to C")]
impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: the context came from `gguf_init_from_file` and is freed once.
        unsafe { sys::gguf_free(self.0.as_ptr()) }
    }
}

/// True if llama.cpp converts a tensor to the target type: matrices of weights, but not norms and expert gates.
fn is_reencoded(name: &str, shape: &[i64]) -> bool {
    let is_matrix = shape.iter().skip(1).any(|&length| length > 1);
    is_matrix && name.ends_with("weight") && !name.contains("_norm.weight") && !name.contains("ffn_gate_inp.weight")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// ggml's type numbers.
    const F32: u32 = 0;
    const Q8_0: u32 = 8;

    /// The header of a GGUF file without metadata, padded to the start of the tensor data.
    pub fn header(tensors: &[(&str, &[u64], u32)]) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend((tensors.len() as u64).to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        let mut offset = 0_u64;
        for (name, shape, kind) in tensors {
            bytes.extend((name.len() as u64).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend(u32::try_from(shape.len()).unwrap().to_le_bytes());
            bytes.extend(shape.iter().flat_map(|length| length.to_le_bytes()));
            bytes.extend(kind.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            let weights = shape.iter().fold(1_u64, |product, &length| product.wrapping_mul(length));
            let size = if *kind == F32 { weights.wrapping_mul(4) } else { weights / 32 * 34 };
            offset = offset.wrapping_add(size.next_multiple_of(ALIGNMENT));
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes
    }

    /// Matrices of 2 MiB in sixteen bits, a norm and a bias.
    pub fn small() -> Vec<u8> {
        header(&[
            ("token_embd.weight", &[512, 1024], Q8_0),
            ("blk.0.attn_q.weight", &[512, 1024], Q8_0),
            ("blk.0.attn_norm.weight", &[512], F32),
            ("blk.0.attn_q.bias", &[1024], F32),
        ])
    }

    fn size(bytes: &[u8]) -> Result<u64, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        reencoded_bytes(file.path())
    }

    #[test]
    fn matrices_take_two_bytes_a_weight_and_the_rest_is_unchanged() {
        let header = small();
        let matrices = 2 * 2 * 512 * 1024;
        assert_eq!(size(&header), Ok(header.len() as u64 + ADDED + matrices + 4 * 512 + 4 * 1024));
        assert!(!is_reencoded("blk.0.ffn_gate_inp.weight", &[512, 8, 1, 1]));
        assert!(!is_reencoded("rope_freqs.weight", &[32, 1, 1, 1]));
        assert!(is_reencoded("blk.0.ffn_up_exps.weight", &[512, 512, 8, 1]));
    }

    /// One block of 32 eight-bit numbers with one scale per row, and numbers of 16 bits.
    #[test]
    fn a_row_is_decoded_in_its_type() {
        const F16: u32 = 1;
        let half = 0x3800_u16.to_le_bytes();
        let block =
            |scale: [u8; 2], first: u8| scale.into_iter().chain((0..32).map(move |at| at + first)).collect::<Vec<u8>>();
        let halves = |number: u16| number.to_le_bytes().repeat(32);
        for (kind, rows, expected) in [
            (
                Q8_0,
                [block([0, 0], 0), block(half, 1)],
                (1..=32).map(|number| f64::from(number) / 2.0).collect::<Vec<_>>(),
            ),
            (F16, [halves(0), halves(0x3c00)], vec![1.0; 32]),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let [first, second] = rows;
            std::fs::write(file.path(), [header(&[("x.weight", &[32, 2], kind)]), first, second].concat()).unwrap();
            let read = Header::read(file.path()).unwrap();
            let row = read.row(file.path(), "x.weight", 1).unwrap().unwrap();
            assert_eq!(row.into_iter().map(f64::from).collect::<Vec<_>>(), expected);
            assert_eq!(read.row(file.path(), "x.weight", 2), Ok(None));
        }
    }

    #[test]
    fn the_number_of_files_of_a_split_model_is_read() {
        let entry = [&11_u64.to_le_bytes()[..], b"split.count", &2_u32.to_le_bytes(), &3_u16.to_le_bytes()].concat();
        let mut bytes = header(&[]);
        bytes.truncate(16);
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(entry);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        assert_eq!(Header::read(file.path()).unwrap().files(), 3);
        std::fs::write(file.path(), small()).unwrap();
        assert_eq!(Header::read(file.path()).unwrap().files(), 1);
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let good = small();
        for bytes in [Vec::new(), vec![0x5a; 4_096], b"GGUF".to_vec(), good[..60].to_vec()] {
            assert!(size(&bytes).is_err_and(|problem| problem.contains("damaged")));
        }
        // More tensors and longer names than the file has room for.
        let mut many = good.clone();
        many[8..16].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
        let mut long = good;
        long[24..32].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        // Shapes whose size is not a 64-bit number, at either width.
        let huge = header(&[("x.weight", &[1 << 40, 1 << 40], F32)]);
        let wide = header(&[("x.weight", &[1 << 31, 1 << 31], Q8_0), ("y.weight", &[1 << 31, 1 << 31], Q8_0)]);
        for bytes in [many, long, huge, wide] {
            assert!(size(&bytes).is_err_and(|problem| problem.contains("damaged")));
        }
        assert_eq!(reencoded_bytes(Path::new("/nowhere/x.gguf")), Err("no such file".to_owned()));
    }
}
