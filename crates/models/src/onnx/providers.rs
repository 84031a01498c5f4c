//! Execution providers in the order in which ONNX Runtime tries them: first those of the build, then the CPU.

use ort::ep::{self, ExecutionProviderDispatch};

pub(super) fn chosen(arena: bool) -> Vec<ExecutionProviderDispatch> {
    vec![
        #[cfg(feature = "onnx-tensorrt")]
        ep::TensorRT::default().build(),
        #[cfg(feature = "onnx-cuda")]
        ep::CUDA::default().build(),
        #[cfg(feature = "onnx-coreml")]
        ep::CoreML::default().build(),
        ep::CPU::default().with_arena_allocator(arena).build(),
    ]
}
