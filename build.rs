//! Sets where the binary of a portable build looks for its shared libraries, and records the build for `rerankd --version`.

use std::process::Command;

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    // llama.cpp's shared libraries are installed in the same folder as the binary. The old tag (DT_RPATH) also applies
    // to the libraries that these libraries load.
    if variable("CARGO_CFG_TARGET_OS") == "linux" && std::env::var_os("CARGO_FEATURE_PORTABLE").is_some() {
        println!("cargo:rustc-link-arg-bins=-Wl,--disable-new-dtags,-rpath,$ORIGIN");
    }
    let profile = variable("PROFILE");
    // A new commit would build the package again, so only release builds record theirs.
    let commit = if profile == "release" { commit() } else { None };
    println!("cargo:rustc-env=RERANKD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo:rustc-env=RERANKD_PROFILE={profile}");
    println!("cargo:rustc-env=RERANKD_TARGET={}", variable("TARGET"));
    println!("cargo:rerun-if-changed=build.rs");
}

/// The commit of the sources, with `-dirty` if a file differs from it. `None` without git, and for a copy of the sources
/// inside another repository.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let below_root = git(&["rev-parse", "--show-prefix"])?;
    if !below_root.is_empty() {
        return None;
    }
    // Each commit and checkout adds a line to this file. An edit makes the tree dirty.
    for path in [&*git(&["rev-parse", "--git-path", "logs/HEAD"])?, "src", "crates"] {
        println!("cargo:rerun-if-changed={path}");
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"])
}
