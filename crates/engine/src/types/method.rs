//! Names of ranking methods.

/// A ranking method of the registry ([`crate::methods`]), by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MethodRef(&'static str);

impl MethodRef {
    /// The method MOI.
    pub const MOI: Self = Self("moi");

    /// Only the registry creates references to other methods.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Its name on the command line and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl Default for MethodRef {
    fn default() -> Self {
        Self("cascade")
    }
}

impl std::fmt::Debug for MethodRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0)
    }
}
