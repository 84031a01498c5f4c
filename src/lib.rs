//! rerankd asks a generator which passages help it, in which order, and by how much.
//!
//! # The path of a request
//!
//! `rpc` or `http` admits it as a `call`, translates it, and hands it to `engine`, the use cases. There its
//! passages are tokenised, its method (`engine::methods`) says which prompts it wants scored, and these become a `plan`: a
//! forest of token segments. `scheduler` carries the plan out on the thread that owns the model; `runtime` is what the model
//! is made of, `model` the seam between the two. With the scores back the method fits (`fit`) or measures (`belief`,
//! `metrics`), and the edge translates the answer. Whatever works for the request carries its `call`, which holds its permit,
//! deadline and cancellation.
//!
//! # The rooms, and who may name whom
//!
//! tests/architecture.rs reads this table and the `crate::` paths of every file, and fails where a room names one that its row
//! does not list. Nothing points back up.
//!
//! | room | the question it answers | may name |
//! |---|---|---|
//! | `numeric` | which arithmetic do several rooms share? | |
//! | `json` | which JSON of other programs is repaired before it is read? | |
//! | `fit` | what are utilities and position bias, given scores of orders or subsets? (MOI, ContextCite) | `numeric` |
//! | `belief` | what does a set of answers say? (SePer, entropies) | `numeric` |
//! | `metrics` | how good is a ranking, an answer, an agreement? | `compress` `numeric` |
//! | `fusion` | how do the model's and the retriever's scores become one order? | `numeric` |
//! | `compress` | which parts of a text are kept, given what its tokens are worth? (Selective-Context, LongLLMLingua) | `numeric` |
//! | `plan` | which tokens are evaluated, and in which order? | `numeric` |
//! | `call` | for whom is work done, until when, and who may stop it? | |
//! | `model` | what does the server ask of a model? | `plan` `belief` `numeric` |
//! | `warm` | which states of passages are kept? | `plan` |
//! | `storage` | what is kept on disk? | `fit` `fusion` |
//! | `runtime` | how do llama.cpp and ONNX Runtime do it? | `model` `storage` `plan` `belief` `numeric` |
//! | `scheduler` | whose work is done next? | `call` `model` `warm` `plan` `belief` `numeric` |
//! | `engine` | what is done for a request? | `call` `scheduler` `fit` `fusion` `compress` `belief` `metrics` `model` `plan` `numeric` |
//! | `observe` | what does a server show of itself? | `call` `engine` `scheduler` `warm` `numeric` |
//! | `transport` | who may connect, and within which bounds? (TLS, tokens, the listener) | |
//! | `config` | what did the operator set? | `engine` `observe` `runtime` `storage` `scheduler` `transport` `warm` |
//! | `telemetry` | what is logged and traced? | `config` `observe` |
//! | `peers` | what do the protocols of other rerankers share, over gRPC and HTTP? | `engine` `json` `numeric` |
//! | `rpc` | how is a request translated from the wire and back? | `transport` `call` `peers` `fusion` `compress` `engine` `observe` `scheduler` `fit` `belief` `metrics` `model` `warm` `plan` `numeric` |
//! | `http` | how do requests of other rerankers' HTTP APIs become ours, and back? | `transport` `call` `peers` `engine` `json` `observe` |
//! | `app` | how do the parts become a server? | `call` `config` `engine` `fit` `fusion` `http` `model` `observe` `rpc` `runtime` `scheduler` `storage` `transport` |
//! | `files` | what do runs, judgements and passages look like in files? | `engine` `json` `metrics` `numeric` |
//! | `backend` | does a server answer, or this process? | `call` `engine` `rpc` |
//! | `evaluation` | how is a retriever judged on many questions? | `json` `call` `fusion` `backend` `files` `engine` `storage` `fit` `belief` `metrics` `rpc` `numeric` |
//! | `distil` | what does a generator prefer, as training data for a smaller one? | `json` `call` `engine` `files` `plan` `storage` |
//! | `analysis` | what do the studies of the papers say of this generator? | `json` `backend` `call` `compress` `engine` `evaluation` `files` `fit` `belief` `metrics` `numeric` `plan` `rpc` |
//! | `cli` | what does a command do? | `json` `analysis` `app` `backend` `call` `compress` `config` `distil` `engine` `evaluation` `files` `fit` `fusion` `belief` `metrics` `model` `numeric` `rpc` `storage` `telemetry` `transport` `warm` |

pub mod app;
pub mod cli;
pub mod config;
pub mod telemetry;

// The texts on which formats stumble are those of the crate `files`.
#[cfg(test)]
#[path = "../crates/files/src/odd.rs"]
mod odd;
