//! The server: gRPC and HTTP in front of the engine, access control and observability.
//!
//! | module | the question it answers |
//! |---|---|
//! | [`transport`] | who may connect, within which bounds? (TLS, tokens, the listener) |
//! | [`rpc`] | how do gRPC requests become ours, and back? |
//! | [`http`] | how do requests of other rerankers' HTTP APIs become ours, and back? |
//! | [`peers`] | what do the protocols of other rerankers share, over gRPC and HTTP? |
//! | [`observe`] | which metrics, traces and log lines does a server write? |
#![warn(missing_docs)]

pub mod http;
pub mod observe;
pub mod peers;
pub mod rpc;
pub mod transport;

/// The platform of this build.
fn target() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// The accelerators of this build, and `portable`.
fn features() -> Vec<&'static str> {
    let features = [
        ("cuda", cfg!(feature = "cuda")),
        ("metal", cfg!(feature = "metal")),
        ("vulkan", cfg!(feature = "vulkan")),
        ("portable", cfg!(feature = "portable")),
    ];
    features.into_iter().filter_map(|(name, on)| on.then_some(name)).collect()
}
