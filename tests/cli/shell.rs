//! The binary: completion scripts and manual pages.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn rerankd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rerankd")).args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = rerankd(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Names of the commands, as `rerankd --help` lists them.
fn commands() -> BTreeSet<String> {
    let help = printed(&["--help"]);
    let listed = help.lines().take_while(|line| *line != "Options:");
    let names: BTreeSet<String> =
        listed.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).filter_map(first_word).collect();
    assert!(names.contains("serve") && names.contains("man"), "{names:?}");
    names
}

fn first_word(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_owned)
}

#[test]
fn every_shell_gets_a_script_that_names_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
    assert_eq!(rerankd(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn bash_completes_commands_and_options() {
    let ask = "compopt() { :; }; eval \"$(cat)\"; COMP_WORDS=(rerankd $1 $2); COMP_CWORD=${#COMP_WORDS[@]}; \
        COMP_CWORD=$((COMP_CWORD - 1)); _rerankd rerankd \"$2\" \"$1\"; echo \"${COMPREPLY[@]}\"";
    let complete = |previous: &str, word: &str| {
        let mut bash = Command::new("bash")
            .args(["-c", ask, "bash", previous, word])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        bash.stdin.take().unwrap().write_all(printed(&["completions", "bash"]).as_bytes()).unwrap();
        String::from_utf8(bash.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(complete("", "posit").trim(), "position-bias");
    assert_eq!(complete("serve", "--addr").trim(), "--address-file");
}

#[test]
fn every_command_has_a_manual_page() {
    assert!(printed(&["man"]).contains(".TH rerankd 1"));
    let folder = tempfile::tempdir().unwrap();
    printed(&["man", "--out", folder.path().to_str().unwrap()]);
    for command in commands().into_iter().filter(|command| command != "help") {
        let page = std::fs::read_to_string(folder.path().join(format!("rerankd-{command}.1"))).unwrap();
        assert!(page.contains("Example"), "{command}");
    }
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("absent");
    let output = rerankd(&["man", "--out", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("absent: the manual pages cannot be written"));
}
