//! The command `rerankd`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rerankd::cli::main()
}
