//! Sets where the binary of a portable build looks for its shared libraries.

fn main() {
    // llama.cpp's shared libraries are installed in the same folder as the binary. The old tag (DT_RPATH) also applies
    // to the libraries that these libraries load.
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if linux && std::env::var_os("CARGO_FEATURE_PORTABLE").is_some() {
        println!("cargo:rustc-link-arg-bins=-Wl,--disable-new-dtags,-rpath,$ORIGIN");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
