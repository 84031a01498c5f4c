use super::*;
use models::llama::CacheType;
use prefix_scheduler::model::PromptFormat;

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
    let environment = [("RERANKD__LIMITS__QUEUE_LENGTH", "9"), ("RERANKD__GENERATOR__CHAT_TEMPLATE", "off")];
    let config = load(text, &environment, &[("generator.threads", "5")]).unwrap();
    assert_eq!((config.limits.passages, config.queue_length, config.generator.threads), (7, 9, 5));
    assert_eq!(config.generator.frame, PromptFormat::Plain);
    assert_eq!(config.limits.query_bytes, 16_384);
}

#[test]
fn a_chat_template_is_recognised_evaluated_or_off() {
    let frame = |text: &str| load(text, &[], &[]).map(|config| config.generator.frame);
    assert_eq!(frame("").unwrap(), PromptFormat::Chat);
    assert_eq!(frame("[generator]\nchat_template = \"jinja\"").unwrap(), PromptFormat::Jinja);
    assert_eq!(frame("[generator]\nchat_template = \"off\"").unwrap(), PromptFormat::Plain);
    let faults = frame("[generator]\nchat_template = true").unwrap_err().faults;
    assert_eq!(faults, ["generator.chat_template: must be one of auto, jinja, off, is true"]);
}

#[test]
fn all_faults_are_listed_at_once() {
    let text = "[limits]\npasages = 7\npassages = \"many\"\n[server]\nlisten = 5\n[nonsense]\nx = 1";
    let faults = load(text, &[], &[]).unwrap_err().faults.join("|");
    for expected in ["limits.pasages: unknown key", "limits.passages: must be between", "nonsense.x: unknown section"] {
        assert!(faults.contains(expected), "{faults}");
    }
    // A value of the wrong type does not hide the other faults.
    let text = "[limits]\npasages = 7\npassages = \"many\"\nqueue_length = 0\n[tls]\ncertificate = true\nkey = \"k.pem\"\n\
                [server]\nlisten = \"0.0.0.0:1\"\n[log]\nformat = \"xml\"\n[models]\nstore = [1]";
    let error = load(text, &[], &[]).unwrap_err();
    let keys: Vec<&str> = error.faults.iter().map(|fault| fault.split(':').next().unwrap()).collect();
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
fn number_types_of_the_kv_cache_are_named() {
    let cells = |text| load(text, &[], &[]).map(|config| config.generator.cache_type);
    assert_eq!(cells("").unwrap(), CacheType::F16);
    assert_eq!(cells("[generator]\ncache_type = \"q8_0\"").unwrap(), CacheType::Q8_0);
    let unknown = cells("[generator]\ncache_type = \"q4_0\"").unwrap_err().faults;
    assert_eq!(unknown, ["generator.cache_type: must be one of f16, bf16, q8_0, is \"q4_0\""]);
}

#[test]
fn cached_passages_on_disk_need_memory() {
    let folder = |text| load(text, &[], &[]).map(|config| config.scheduler.warm);
    let found = folder("[passage_cache]\nmemory_bytes = 5\ndisk = \"/states\"\ndisk_bytes = 7").unwrap();
    let disk = Some(DiskOptions { folder: "/states".into(), bytes: 7 });
    assert_eq!(found, warm::Options { memory_bytes: 5, disk });
    assert_eq!(folder("[passage_cache]\nmemory_bytes = \"off\"").unwrap(), warm::Options::default());
    let faults = folder("[passage_cache]\nmemory_bytes = \"off\"\ndisk = \"/states\"").unwrap_err().faults;
    assert!(faults[0].starts_with("passage_cache.disk: must be \"off\""), "{faults:?}");
    let faults = folder("[passage_cache]\nmemory_bytes = 0").unwrap_err().faults;
    assert!(faults[0].starts_with("passage_cache.memory_bytes: must be \"off\" or between 1 and "), "{faults:?}");
}

#[test]
fn reproducible_scores_and_states_on_disk_exclude_each_other() {
    assert!(load("[generator]\nreproducible = true", &[], &[]).unwrap().scheduler.reproducible);
    let text = "[generator]\nreproducible = true\n[passage_cache]\ndisk = \"/states\"";
    assert!(load(text, &[], &[]).unwrap_err().faults[0].starts_with("passage_cache.disk: "));
}

#[test]
fn profiles_are_learnt_but_not_used_unless_the_operator_says_so() {
    let plain = load("", &[], &[]).unwrap();
    assert!(plain.learn_position_bias && !plain.use_learnt_position_bias && plain.use_built_in_position_bias);
    let flags = |profiles: &str| {
        let config = load(&format!("[position_bias]\nlearn = false\nprofiles = {profiles:?}"), &[], &[]).unwrap();
        (config.learn_position_bias, config.use_learnt_position_bias, config.use_built_in_position_bias)
    };
    assert_eq!(flags("learnt"), (false, true, true));
    assert_eq!(flags("calibrated"), (false, false, false));
    let faults = load("[position_bias]\nprofiles = 2", &[], &[]).unwrap_err().faults;
    assert_eq!(faults, ["position_bias.profiles: must be one of calibrated, built-in, learnt, is 2"]);
}

#[test]
fn the_wait_of_requests_without_a_deadline_is_bounded_unless_it_is_unlimited() {
    let waits = |text| {
        let config = load(text, &[], &[]).unwrap();
        (config.scheduler.longest_wait, config.limits.permit_wait)
    };
    let half_a_minute = Some(Duration::from_secs(30));
    assert_eq!(waits(""), (half_a_minute, half_a_minute));
    assert_eq!(waits("[limits]\nqueue_seconds = \"unlimited\""), (None, None));
}

#[test]
fn a_file_that_is_not_toml_is_named() {
    assert!(load("[limits", &[], &[]).unwrap_err().to_string().contains("rerankd.toml"));
    let missing = Config::from_parts(Some(Path::new("/nowhere/rerankd.toml")), &[], &[]).unwrap_err();
    assert!(missing.to_string().starts_with("/nowhere/rerankd.toml: "));
}

/// Compose files set a missing variable to nothing, and a token read from a file ends with a newline.
#[test]
fn an_empty_variable_is_not_set() {
    let empty = [("HF_ENDPOINT", ""), ("HF_TOKEN", " "), ("ORT_DYLIB_PATH", ""), ("RERANKD__LIMITS__PASSAGES", "")];
    let (plain, with) = (load("", &[], &[]).unwrap(), load("", &empty, &[]).unwrap());
    assert_eq!(format!("{:?}", with.store), format!("{:?}", plain.store));
    assert_eq!((with.entailment.library, with.limits.passages), (plain.entailment.library, 100));
    let token = load("", &[("HF_TOKEN", "hf_x\n")], &[]).unwrap();
    assert_eq!(format!("{:?}", token.store), format!("{:?}", load("", &[("HF_TOKEN", "hf_x")], &[]).unwrap().store));
    let mirror = load("", &[("HF_ENDPOINT", "http://127.0.0.1:1")], &[]).unwrap();
    assert!(format!("{:?}", mirror.store).contains("http://127.0.0.1:1"));
}

#[test]
fn a_fault_of_the_syntax_has_its_line() {
    let fault = load("[limits]\npassages = = 3", &[], &[]).unwrap_err().to_string();
    assert!(fault.contains("line 2"), "{fault}");
}
