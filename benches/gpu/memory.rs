//! Memory in use on an NVIDIA device, from its driver's tool.

use std::process::Command;

use crate::report::Line;

/// Prints the memory in use on the first device, if there is one.
pub fn print(when: &str) {
    let asked = Command::new("nvidia-smi").args(["--query-gpu=memory.used", "--format=csv,noheader,nounits"]).output();
    let Ok(answer) = asked else { return };
    let text = String::from_utf8_lossy(&answer.stdout);
    if let Some(used) = text.lines().next().and_then(|line| line.trim().parse::<f64>().ok()) {
        Line::new(&format!("memory of the device, {when}"), used, "MiB").print();
    }
}
