//! Identifies the hardware and build that decide the speed of a tensor type.

use super::super::{Settings, accelerator, offloads, uses_amx};

/// The device that computes the steps of a generator.
pub(super) struct Machine {
    /// Kind and name of the accelerator, and the number of layers on it; `None` if the CPU computes.
    accelerator: Option<String>,
}

impl Machine {
    /// The device for these settings. If llama.cpp cannot be initialised, there is no accelerator; loading reports the
    /// error.
    pub fn of(settings: &Settings) -> Self {
        let found = if offloads(settings).unwrap_or(false) { accelerator() } else { None };
        // Some layers may be left to the CPU.
        let layers = settings.gpu_layers;
        Self { accelerator: found.map(|device| format!("{} {}, {layers}", device.backend, device.description)) }
    }

    pub const fn accelerated(&self) -> bool {
        self.accelerator.is_some()
    }

    /// Equal for machines on which a tensor type has the same speed.
    pub fn fingerprint(&self) -> u32 {
        let mut text = self.accelerator.clone().unwrap_or_else(cpu);
        text.push_str(if cfg!(feature = "portable") { "portable" } else { "fixed" });
        // FNV-1a: the standard library's hasher may change between releases.
        text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

/// The CPU's features at run time and the features that the build may use.
fn cpu() -> String {
    let mut text = std::env::consts::ARCH.to_owned();
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let found = [
            has!("avx2"),
            has!("fma"),
            has!("f16c"),
            has!("avx512f"),
            has!("avx512vnni"),
            has!("avx512bf16"),
            cfg!(target_feature = "avx2"),
            cfg!(target_feature = "avx512f"),
            cfg!(target_feature = "avx512bf16"),
        ];
        text.push_str(&format!("{found:?}{}", uses_amx()));
    }
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        text.push_str(&format!("{:?}", [has!("dotprod"), has!("i8mm"), has!("bf16"), has!("fp16")]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_and_each_accelerator_have_separate_results() {
        let of = |name: Option<&str>| Machine { accelerator: name.map(str::to_owned) }.fingerprint();
        let all = [of(None), of(Some("CUDA NVIDIA H200")), of(Some("CUDA NVIDIA L4")), of(Some("Vulkan NVIDIA L4"))];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
        assert_eq!(of(None), all[0]);
    }
}
