//! The server: gRPC and HTTP in front of the engine, who may connect, and what is shown of the work.
//!
//! | module | the question it answers |
//! |---|---|
//! | [`transport`] | who may connect, and within which bounds? (TLS, tokens, the listener) |
//! | [`rpc`] | how is a request translated from the wire and back? |
//! | [`http`] | how do requests of other rerankers' HTTP APIs become ours, and back? |
//! | [`peers`] | what do the protocols of other rerankers share, over gRPC and HTTP? |
//! | [`observe`] | what does a server show of itself? |
#![warn(missing_docs)]

pub mod http;
pub mod observe;
pub mod peers;
pub mod rpc;
pub mod transport;
