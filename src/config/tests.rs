use super::*;
use engine::prompt::Frame;
use models::llama::CacheType;

fn load(text: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rerankd.toml");
    std::fs::write(&path, text).unwrap();
    let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Config::from_parts(Some(&path), &own(environment), &own(flags))
}

#[test]
fn later_sources_win() {
    let text = "[limits]\npassages = 7\nqueue_length = 8\n[generator]\nthreads = 3";
    let environment = [("RERANKD__LIMITS__QUEUE_LENGTH", "9"), ("RERANKD__GENERATOR__CHAT_TEMPLATE", "false")];
    let config = load(text, &environment, &[("generator.threads", "5")]).unwrap();
    assert_eq!((config.limits.passages, config.queue_length, config.generator.threads), (7, 9, 5));
    assert_eq!(config.generator.frame, Frame::Plain);
    assert_eq!(config.limits.query_bytes, 16_384);
}

#[test]
fn a_frame_of_prompts_follows_from_two_keys() {
    let frame = |text: &str| load(text, &[], &[]).unwrap().generator.frame;
    assert_eq!(frame(""), Frame::Chat);
    assert_eq!(frame("[generator]\njinja = true"), Frame::Jinja);
    assert_eq!(frame("[generator]\nchat_template = false"), Frame::Plain);
    let faults =
        load("[scorer]\nmodel = \"x.gguf\"\njinja = true\nchat_template = false", &[], &[]).unwrap_err().faults;
    assert_eq!(faults, ["scorer.jinja: needs scorer.chat_template=true"]);
}

#[test]
fn all_faults_are_listed_at_once() {
    let text = "[limits]\npasages = 7\npassages = \"many\"\n[server]\nlisten = 5\n[nonsense]\nx = 1";
    let faults = load(text, &[], &[]).unwrap_err().faults.join("|");
    for expected in ["limits.pasages: unknown key", "limits.passages: must be a whole number", "nonsense: unknown key"]
    {
        assert!(faults.contains(expected), "{faults}");
    }
    // What was found of the type of a value does not hide what is wrong with the others.
    let text = "[limits]\npasages = 7\npassages = \"many\"\nqueue_length = 0\n[tls]\ncertificate = true\nkey = \"k.pem\"\n\
                [server]\nlisten = \"0.0.0.0:1\"\n[log]\nformat = \"xml\"\n[models]\nstore = [1]";
    let error = load(text, &[], &[]).unwrap_err();
    let keys: Vec<&str> = error.faults.iter().map(|fault| key(fault)).collect();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    let expected =
        ["limits.pasages", "limits.passages", "limits.queue_length", "log.format", "models.store", "tls.certificate"];
    assert_eq!(sorted, expected, "{:?}", error.faults);
    let text = "[limits]\npassages = 0\n[auth]\ntokens_file = \"/nowhere/tokens\"";
    let error = load(text, &[], &[]).unwrap_err();
    assert_eq!(error.files.tokens.as_deref(), Some(Path::new("/nowhere/tokens")));
    let text = "[limits]\npassages = 0\n[server]\nlisten = \"here\"\n[log]\nformat = \"xml\"";
    let faults = load(text, &[], &[]).unwrap_err().faults;
    assert_eq!(faults.len(), 3, "{faults:?}");
}

#[test]
fn eight_bit_cells_need_the_fused_kernel() {
    let cells = |text| load(text, &[], &[]).map(|config| config.generator.cache_type);
    assert_eq!(cells("").unwrap(), CacheType::F16);
    assert_eq!(cells("[generator]\ncache_type = \"q8_0\"").unwrap(), CacheType::Q8_0);
    assert_eq!(cells("[generator]\ncache_type = \"bf16\"\nflash_attention = false").unwrap(), CacheType::Bf16);
    let fault = |text| cells(text).unwrap_err().faults.join("|");
    let unknown = fault("[generator]\ncache_type = \"q4_0\"");
    assert_eq!(unknown, "generator.cache_type: must be f16, bf16 or q8_0, is \"q4_0\"");
    let apart = fault("[generator]\ncache_type = \"q8_0\"\nflash_attention = false");
    assert!(apart.starts_with("generator.cache_type: q8_0 needs generator.flash_attention"), "{apart}");
}

#[test]
fn reproducible_scores_and_states_on_disk_exclude_each_other() {
    assert!(load("[generator]\nreproducible = true", &[], &[]).unwrap().scheduler.reproducible);
    let text = "[generator]\nreproducible = true\n[warm]\ndisk = \"/states\"";
    assert!(load(text, &[], &[]).unwrap_err().faults[0].starts_with("warm.disk: "));
}

#[test]
fn profiles_are_learnt_but_not_used_unless_the_operator_says_so() {
    let plain = load("", &[], &[]).unwrap();
    assert!(plain.learn_position_bias && !plain.use_learnt_position_bias && plain.use_built_in_position_bias);
    let used = load("[position_bias]\nlearn = false\nuse_learnt = true\nuse_built_in = false", &[], &[]).unwrap();
    assert!(!used.learn_position_bias && used.use_learnt_position_bias && !used.use_built_in_position_bias);
    let faults = load("[position_bias]\nuse_learnt = 2", &[], &[]).unwrap_err().faults;
    assert_eq!(faults, vec!["position_bias.use_learnt: must be true or false, is 2"]);
}

#[test]
fn the_wait_of_requests_without_a_deadline_is_bounded_unless_it_is_0() {
    let waits = |text| {
        let config = load(text, &[], &[]).unwrap();
        (config.scheduler.longest_wait, config.limits.permit_wait)
    };
    let half_a_minute = Some(Duration::from_secs(30));
    assert_eq!(waits(""), (half_a_minute, half_a_minute));
    assert_eq!(waits("[limits]\nqueue_seconds = 0"), (None, None));
}

#[test]
fn a_file_that_is_no_toml_is_named() {
    assert!(load("[limits", &[], &[]).unwrap_err().to_string().contains("rerankd.toml"));
    let missing = Config::from_parts(Some(Path::new("/nowhere/rerankd.toml")), &[], &[]).unwrap_err();
    assert!(missing.to_string().starts_with("/nowhere/rerankd.toml: "));
}

#[test]
fn secrets_are_masked_and_hub_variables_are_honoured() {
    let config = load("[models]\nhub_token = \"secret\"", &[("HF_ENDPOINT", "http://127.0.0.1:1")], &[]).unwrap();
    assert!(!config.effective().contains("secret") && config.effective().contains("***"));
    assert!(format!("{:?}", config.store).contains("http://127.0.0.1:1"));
    let mirror = load("[models]\nhub_endpoint = \"https://user:a@secret@mirror/h@f\"", &[], &[]).unwrap();
    let shown = mirror.effective();
    assert!(!shown.contains("secret") && shown.contains("https://***@mirror/h@f"), "{shown}");
}

/// Compose files set a variable to nothing where it is missing, and a token that was read from a file ends with its line.
#[test]
fn an_empty_variable_is_not_set() {
    let empty = [("HF_ENDPOINT", ""), ("HF_TOKEN", " "), ("ORT_DYLIB_PATH", "")];
    let (plain, with) = (load("", &[], &[]).unwrap(), load("", &empty, &[]).unwrap());
    assert_eq!(format!("{:?}", with.store), format!("{:?}", plain.store));
    assert_eq!(with.entailment.library, plain.entailment.library);
    let token = load("", &[("HF_TOKEN", "hf_x\n")], &[]).unwrap();
    assert_eq!(format!("{:?}", token.store), format!("{:?}", load("", &[("HF_TOKEN", "hf_x")], &[]).unwrap().store));
}

/// The faults of a configuration go to standard error and, when it is read again, into the log.
#[test]
fn a_faulty_configuration_does_not_show_the_token() {
    for text in [
        "[models]\nhub_token = hf_secret",
        "[models]\nhub_token =\n hf_secret",
        "[models]\nhub_token = \"hf_secret",
        "[models]\nhub_token = [\"hf_secret\"]",
        "[models.hub_token]\nhf_secret = 1",
        "[[models]]\nhub_token = \"hf_secret\"",
        "models = [\"hf_secret\"]",
    ] {
        let fault = load(text, &[], &[]).unwrap_err().to_string();
        assert!(
            !fault.contains("hf_secret")
                && fault.contains("rerankd.toml") | fault.contains("hub_token") | fault.contains("models"),
            "{fault}"
        );
    }
    let fault = load("[limits]\npassages = = 3", &[], &[]).unwrap_err().to_string();
    assert!(fault.contains("line 2"), "{fault}");
}
