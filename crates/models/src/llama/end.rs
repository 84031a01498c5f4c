//! The end of a process whose models still compute.

/// Ends the process with this code at once. The destructors of its libraries do not run: those of llama.cpp and OpenMP free what
/// their threads use, and a step that cannot be interrupted would then end in a segmentation fault instead of the code. Whatever
/// the process wrote must have been flushed. On systems without `_exit` nothing is done.
pub fn end_process(code: u8) {
    #[cfg(unix)]
    #[expect(unsafe_code, reason = "the standard library has no exit without destructors")]
    // SAFETY: _exit takes any number and touches no memory of the process.
    unsafe {
        libc::_exit(i32::from(code))
    }
    #[cfg(not(unix))]
    let _ = code;
}
