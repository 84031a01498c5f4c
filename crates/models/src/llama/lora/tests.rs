use super::*;

#[path = "../../../../../tests/common/gguf.rs"]
mod gguf;

use gguf::{Tensor as Written, adapter_values, bytes, factors, text};

const BASE_HASH: &str = "b0";

/// A model's header with the matrices that the tests name. Only names and shapes matter.
fn base() -> Vec<u8> {
    base_with(&[])
}

fn base_with(more: &[(&'static str, gguf::Value)]) -> Vec<u8> {
    let matrix = |name: &str, inputs: u64, outputs: u64| {
        (name.to_owned(), vec![inputs, outputs], vec![0.0; usize::try_from(inputs * outputs).unwrap()])
    };
    let tensors = [
        matrix("token_embd.weight", 8, 10),
        matrix("output.weight", 8, 10),
        matrix("blk.0.attn_q.weight", 8, 8),
        matrix("blk.0.attn_k.weight", 8, 4),
        matrix("blk.0.ffn_gate_inp.weight", 8, 2),
        ("blk.0.attn_norm.weight".to_owned(), vec![8], vec![1.0; 8]),
    ];
    let long = "x".repeat(10_000);
    let values = [
        ("general.architecture", text("llama")),
        ("tokenizer.chat_template", text(&long)),
        ("tokenizer.ggml.tokens", gguf::Value::Texts(vec!["a".to_owned(), String::new(), long.clone()])),
        ("tokenizer.ggml.token_type", gguf::Value::Numbers(vec![1; 300])),
    ];
    bytes(&[&values, more].concat(), &tensors)
}

fn good() -> Vec<Written> {
    [factors("blk.0.attn_q.weight", 8, 8, 2, 0.1), factors("blk.0.attn_k.weight", 8, 4, 3, 0.1)].concat()
}

fn outcome_of(content: &[u8], scale: f32) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let (model, path) = (folder.path().join("base.gguf"), folder.path().join("adapter.gguf"));
    std::fs::write(&model, base()).unwrap();
    std::fs::write(&path, content).unwrap();
    let sha256 = store::hash(&path).unwrap();
    verified(&Adapter { path, sha256, scale, base: BASE_HASH.to_owned() }, &model)
}

/// The reason for refusing an adapter, without its path.
fn verified(adapter: &Adapter, model: &Path) -> Result<(), String> {
    verify(adapter, model).map_err(|error| {
        let error = error.to_string();
        error.strip_prefix(&format!("{}: ", adapter.path.display())).expect("the adapter is named").to_owned()
    })
}

fn outcome(content: &[u8]) -> Result<(), String> {
    outcome_of(content, 1.0)
}

fn with_tensors(tensors: &[Written]) -> Result<(), String> {
    outcome(&bytes(&adapter_values("llama", 16.0), tensors))
}

#[test]
fn pairs_of_factors_of_the_models_matrices_are_good() {
    assert_eq!(with_tensors(&good()), Ok(()));
    assert_eq!(with_tensors(&factors("output.weight", 8, 10, 1, 0.1)), Ok(()));
    // Without alpha, only the scale counts.
    assert_eq!(outcome(&bytes(&adapter_values("llama", 16.0)[..3], &good())), Ok(()));
}

/// A copy that keeps size and modification time is found by its content.
#[test]
fn a_file_that_changed_since_it_was_hashed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (model, path) = (folder.path().join("base.gguf"), folder.path().join("adapter.gguf"));
    std::fs::write(&model, base()).unwrap();
    std::fs::write(&path, bytes(&adapter_values("llama", 16.0), &good())).unwrap();
    let sha256 = store::hash(&path).unwrap();
    let adapter = Adapter { path, sha256, scale: 1.0, base: BASE_HASH.to_owned() };
    assert_eq!(verified(&adapter, &model), Ok(()));
    std::fs::write(&adapter.path, bytes(&adapter_values("llama", 8.0), &good())).unwrap();
    let problem = verified(&adapter, &model).unwrap_err();
    assert!(problem.starts_with("the file changed: SHA-256 is ") && problem.contains(&adapter.sha256), "{problem}");
    std::fs::remove_file(&adapter.path).unwrap();
    assert!(!verified(&adapter, &model).unwrap_err().is_empty());
}

#[test]
fn the_files_of_a_split_model_take_no_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let (model, path) = (folder.path().join("base-00001-of-00003.gguf"), folder.path().join("adapter.gguf"));
    std::fs::write(&path, bytes(&adapter_values("llama", 16.0), &good())).unwrap();
    let sha256 = store::hash(&path).unwrap();
    let adapter = Adapter { path, sha256, scale: 1.0, base: BASE_HASH.to_owned() };
    for (files, problem) in
        [(1, Ok(())), (3, Err("the model is split over 3 files: adapters on split files are not supported".to_owned()))]
    {
        std::fs::write(&model, base_with(&[(SPLIT, gguf::Value::Short(files))])).unwrap();
        assert_eq!(verified(&adapter, &model), problem);
    }
}

#[test]
fn tensors_that_would_not_be_applied_are_named() {
    let fault = |tensors: &[Written]| with_tensors(tensors).unwrap_err();
    for name in ["blk.0.attn_norm.weight", "token_embd.weight", "blk.0.ffn_gate_inp.weight", "blk.x.attn_q.weight", "x"]
    {
        let problem = fault(&[good(), factors(name, 8, 8, 2, 0.1).to_vec()].concat());
        assert!(problem.starts_with(&format!("tensor \"{name}.lora_a\" would not be applied")), "{problem}");
    }
    // llama.cpp silently ignores norms.
    let mut norm = good();
    norm.push(("blk.0.attn_norm.weight".to_owned(), vec![8], vec![1.0; 8]));
    assert!(fault(&norm).starts_with("tensor \"blk.0.attn_norm.weight\" would not be applied"));
    assert_eq!(fault(&factors("blk.7.attn_q.weight", 8, 8, 2, 0.1)), "the model has no tensor \"blk.7.attn_q.weight\"");
    assert_eq!(fault(&good()[..3]), "\"blk.0.attn_k.weight\" has only one of lora_a and lora_b");
    assert_eq!(fault(&[]), "the adapter has no tensors");
}

#[test]
fn shapes_are_those_of_the_model() {
    let fault = |tensors: &[Written]| with_tensors(tensors).unwrap_err();
    let problem = fault(&factors("blk.0.attn_k.weight", 8, 8, 2, 0.1));
    assert!(problem.ends_with("lora_a [8, r] and lora_b [r, 4] expected"), "{problem}");
    assert!(fault(&factors("blk.0.attn_k.weight", 4, 8, 2, 0.1)).contains("expected"), "factors the wrong way round");
    let mut ranks = factors("blk.0.attn_q.weight", 8, 8, 2, 0.1);
    ranks[1] = factors("blk.0.attn_q.weight", 8, 8, 3, 0.1)[1].clone();
    assert!(fault(&ranks).contains("lora_b [3, 8]"), "{}", fault(&ranks));
    let mut flat = good();
    flat[0].1 = vec![16];
    assert!(fault(&flat).ends_with("must be matrices"), "{}", fault(&flat));
    assert_eq!(
        fault(&factors("blk.0.attn_q.weight", 8, 8, 0, 0.1)),
        "\"blk.0.attn_q.weight\" has rank 0, 1 to 4096 allowed"
    );
}

#[test]
fn the_metadata_is_that_of_an_adapter_for_this_model() {
    let fault = |key: &'static str, value: Option<gguf::Value>| {
        let mut values = adapter_values("llama", 16.0);
        values.retain(|(other, _)| *other != key);
        values.extend(value.map(|value| (key, value)));
        outcome(&bytes(&values, &good())).unwrap_err()
    };
    assert_eq!(fault("general.type", Some(text("model"))), "general.type is \"model\", \"adapter\" expected");
    assert_eq!(fault("general.type", None), "it has no general.type");
    assert_eq!(fault("adapter.type", Some(gguf::Value::Number(1))), "adapter.type is not a short text");
    assert_eq!(fault("adapter.type", Some(text("ia3"))), "adapter.type is \"ia3\", \"lora\" expected");
    let architecture = fault("general.architecture", Some(text("qwen2")));
    assert_eq!(architecture, "general.architecture is \"qwen2\", the model's is \"llama\"");
    // llama.cpp would end the process for an alpha of another type.
    assert!(fault("adapter.lora.alpha", Some(gguf::Value::Number(16))).contains("must be a finite float32"));
    assert!(fault("adapter.lora.alpha", Some(gguf::Value::Float(f32::NAN))).contains("must be a finite float32"));
    assert!(fault("adapter.alora.invocation_tokens", Some(gguf::Value::Numbers(vec![1]))).contains("activated"));
    assert_eq!(fault(BASE, Some(text("c1"))), format!("{BASE} is c1, the model's file has b0"));
    let named = [adapter_values("llama", 16.0), vec![(BASE, text(BASE_HASH))]].concat();
    assert_eq!(outcome(&bytes(&named, &good())), Ok(()));
    for scale in [f32::NAN, f32::INFINITY, 1e38] {
        let problem = outcome_of(&bytes(&adapter_values("llama", 16.0), &good()), scale).unwrap_err();
        assert!(problem.ends_with("is not finite"), "{problem}");
    }
}

#[test]
fn numbers_are_finite_and_within_the_file() {
    let whole = bytes(&adapter_values("llama", 16.0), &good());
    let header = {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whole.gguf");
        std::fs::write(&path, &whole).unwrap();
        UntrustedHeader::read(&path).unwrap()
    };
    // The last tensor has 12 numbers, 48 bytes, and 16 of padding.
    for length in 0..whole.len() {
        let found = outcome(&whole[..length]);
        assert_eq!(found.is_ok(), length >= whole.len() - 16, "{length} of {}: {found:?}", whole.len());
    }
    for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut wrong = good();
        *wrong[3].2.last_mut().unwrap() = number;
        assert_eq!(
            with_tensors(&wrong).unwrap_err(),
            "tensor \"blk.0.attn_k.weight.lora_b\" has numbers that are not finite"
        );
    }
    // Sixteen bits: the largest finite numbers and the infinities of both types, and a type that has blocks.
    for (kind, bits, problem) in [
        (1, 0x7bff_u16, None),
        (1, 0xfc00, Some("not finite")),
        (30, 0x7f7f, None),
        (30, 0x7f80, Some("not finite")),
        (8, 0, Some("ggml's type 8")),
    ] {
        let mut other = whole.clone();
        for tensor in &header.tensors {
            let name = other.windows(tensor.name.len()).position(|window| window == tensor.name.as_bytes()).unwrap();
            let at = name + tensor.name.len() + 4 + 8 * tensor.shape.len();
            other[at..at + 4].copy_from_slice(&u32::to_le_bytes(kind));
            let start = usize::try_from(tensor.start).unwrap();
            other[start..start + 2].copy_from_slice(&bits.to_le_bytes());
        }
        let found = outcome(&other);
        match problem {
            None => assert_eq!(found, Ok(()), "{kind} {bits:x}"),
            Some(problem) => assert!(found.unwrap_err().contains(problem), "{kind} {bits:x}"),
        }
    }
}

#[test]
fn damaged_headers_are_refused_without_reading_what_they_promise() {
    let whole = bytes(&adapter_values("llama", 16.0), &good());
    let changed = |at: usize, value: u64| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        outcome(&bytes).unwrap_err()
    };
    assert_eq!(outcome(b"").unwrap_err(), "not a GGUF file");
    assert_eq!(outcome(b"GGML and so on").unwrap_err(), "not a GGUF file");
    assert_eq!(changed(4, 9), "GGUF version 9: 2 or 3 expected");
    for count in [5, 1 << 40, u64::MAX] {
        // Tensors, values, the length of the first key.
        for at in [8, 16, 24] {
            let problem = changed(at, count);
            assert!(!problem.is_empty(), "{at} {count}: {problem}");
        }
    }
    assert!(changed(24, u64::MAX).contains("ends inside its header"));
    let twice = [adapter_values("llama", 16.0), adapter_values("llama", 16.0)].concat();
    assert_eq!(outcome(&bytes(&twice, &good())).unwrap_err(), "the key general.architecture occurs twice");
    let aligned = |value| {
        let values = [adapter_values("llama", 16.0), vec![("general.alignment", value)]].concat();
        outcome(&bytes(&values, &good()))
    };
    assert_eq!(aligned(gguf::Value::Number(32)), Ok(()));
    assert_eq!(aligned(gguf::Value::Number(0)).unwrap_err(), "general.alignment is not a power of two");
    assert_eq!(aligned(gguf::Value::Number(24)).unwrap_err(), "general.alignment is not a power of two");
}
