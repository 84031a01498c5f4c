//! Where the binary of a portable build finds its shared libraries.

fn main() {
    // llama.cpp's shared libraries lie beside the binary wherever that is installed. The old tag holds for the libraries that these
    // libraries need, too.
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if linux && std::env::var_os("CARGO_FEATURE_PORTABLE").is_some() {
        println!("cargo:rustc-link-arg-bins=-Wl,--disable-new-dtags,-rpath,$ORIGIN");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
