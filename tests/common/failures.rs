//! Errors of failed calls.
#![allow(dead_code, reason = "every test file uses its own part")]

/// True if the call never reached the server: the client could not connect, or hyper had not yet sent the call when the
/// connection ended, which hyper calls cancelled. Such a call can be repeated.
pub fn unsent(status: &tonic::Status) -> bool {
    let first = std::error::Error::source(status);
    std::iter::successors(first, |cause| cause.source()).any(|cause| {
        cause.to_string().contains("connect error")
            || cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
    })
}

/// Fields named by the violations of a bad request.
pub fn fields(status: &tonic::Status) -> Vec<String> {
    use tonic_types::StatusExt;
    status.get_details_bad_request().unwrap().field_violations.into_iter().map(|violation| violation.field).collect()
}
