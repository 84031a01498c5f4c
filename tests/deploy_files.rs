//! Statements of the chart, the unit and the compose file about a server, against its behaviour.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test that fails says where")]

fn file(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The number after `key` in a text.
fn number(text: &str, key: &str) -> u64 {
    let rest = text.split_once(key).unwrap_or_else(|| panic!("no {key}")).1;
    let digits: String = rest.chars().skip_while(char::is_ascii_whitespace).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{key} has no number: {rest:.20}"))
}

/// After its drain a server takes up to eight seconds.
#[test]
fn a_server_is_not_killed_before_it_can_have_stopped() {
    let config = rerankd::config::Config::from_parts(None, &[], &[]).unwrap();
    let phases = (config.server.drain + config.server.lame_duck).as_secs();
    assert!(number(&file("deploy/rerankd.service"), "TimeoutStopSec=") >= phases + 10);
    assert!(number(&file("compose.yaml"), "stop_grace_period:") >= phases + 10);
    // By default Docker kills after ten seconds.
    assert!(number(&file("docs/how-to/deploy.md"), "--stop-timeout ") >= phases + 10);
    let helpers = file("helm/rerankd/templates/_helpers.tpl");
    let grace = helpers.split_once("define \"rerankd.grace\"").unwrap().1;
    assert!(number(grace, "add .Values.preStopSeconds (default 0 $server.lame_duck_seconds) $drain") >= 10);
}

/// scripts/chart-readme.py writes README.md of the chart. This test finds edits by hand early; `make test-helm` checks
/// the rows from values.yaml.
#[test]
fn the_readme_of_the_chart_has_the_text_of_its_source() {
    let page = file("helm/rerankd/README.md");
    let source = file("helm/rerankd/README.in.md");
    for part in source.split("<!-- values -->") {
        assert!(page.contains(part), "helm/rerankd/README.md is not up to date: run scripts/chart-readme.py");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).collect::<Vec<_>>();
    for line in file("helm/rerankd/values.yaml").lines().filter_map(|line| line.trim().strip_prefix("# -- ")) {
        assert!(rows.iter().any(|row| row.contains(line)), "no row says: {line}");
    }
}

/// The example of docs/how-to/gate.md is YAML, and the program takes its options.
#[test]
fn the_example_workflow_runs_commands_that_exist() {
    use saphyr::{LoadableYamlNode, Yaml};
    let page = file("docs/how-to/gate.md");
    let example = page.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0;
    let documents = Yaml::load_from_str(example).unwrap();
    let steps = documents[0]["jobs"]["gate"]["steps"].as_sequence().unwrap();
    let runs = |step: &Yaml<'_>| step.as_mapping_get("run").and_then(Yaml::as_str).map(str::to_owned);
    let commands: Vec<String> = steps.iter().filter_map(runs).filter(|run| run.starts_with("rerankd ")).collect();
    assert_eq!(commands.len(), 1, "{commands:?}");
    for command in commands {
        // Arguments before --help are checked.
        let arguments = command.split_whitespace().skip(1).chain(["--help"]);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_rerankd")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
