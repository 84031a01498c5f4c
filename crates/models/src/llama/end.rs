//! The end of a process with running models.

/// Ends the process with this code at once, without the destructors of its libraries. The destructors of llama.cpp
/// free data that its threads still use, so a running step would end in a segmentation fault instead
/// of the code. Flush all output first. Does nothing on systems without `_exit`.
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
