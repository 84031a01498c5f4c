//! `rerankd --version`

use comfy_table::{ContentArrangement, Table, presets};

use super::output;
use crate::app;
use crate::config::Config;
use models::llama::System;

/// The version with the build, and with the instruction sets, devices and ONNX Runtime that it uses on this machine. No model
/// is loaded.
pub(super) fn describe() -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(output::width());
    table.add_row(["commit", env!("RERANKD_COMMIT")]);
    table.add_row(["build", concat!(env!("RERANKD_PROFILE"), ", ", env!("RERANKD_TARGET"))]);
    table.add_row(["features".to_owned(), features()]);
    match System::read() {
        Ok(system) => {
            if let Some(kernels) = system.kernels {
                table.add_row(["CPU kernels", &kernels]);
            }
            table.add_row(["instructions", &system.instructions.join(" ")]);
            table.add_row(["AMX", if system.amx { "yes" } else { "no" }]);
            let devices = system.devices.iter().map(|(name, description)| format!("{name}: {description}"));
            table.add_row(["devices", &devices.collect::<Vec<_>>().join("\n")]);
        }
        Err(error) => {
            table.add_row(["llama.cpp", &error.to_string()]);
        }
    }
    table.add_row(["ONNX Runtime".to_owned(), onnx_runtime()]);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    format!("rerankd {}\n{}\n", env!("CARGO_PKG_VERSION"), table.trim_fmt())
}

/// Features of cargo that this build has.
fn features() -> String {
    let all = [
        ("lab", cfg!(feature = "lab")),
        ("portable", cfg!(feature = "portable")),
        ("cuda", cfg!(feature = "cuda")),
        ("metal", cfg!(feature = "metal")),
        ("vulkan", cfg!(feature = "vulkan")),
        ("onnx-cuda", cfg!(feature = "onnx-cuda")),
        ("onnx-tensorrt", cfg!(feature = "onnx-tensorrt")),
        ("onnx-coreml", cfg!(feature = "onnx-coreml")),
    ];
    let mut names: Vec<&str> = all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
    if names.is_empty() {
        names.push("none");
    }
    names.join(", ")
}

/// Version and path of ONNX Runtime, by the defaults and the variables of the configuration.
fn onnx_runtime() -> String {
    let config = match Config::load(None, &[]) {
        Ok(config) => config,
        Err(error) => return format!("invalid configuration:\n{error}"),
    };
    let library = match app::onnx_library(config.entailment.library, &config.store) {
        Ok(library) => library,
        Err(error) => return error.to_string(),
    };
    let shown = library.display();
    if !library.is_file() {
        return format!("{shown}: no such file");
    }
    let version = models::onnx::version(&library);
    format!("{}, {shown}", version.as_deref().unwrap_or("of unknown version"))
}
