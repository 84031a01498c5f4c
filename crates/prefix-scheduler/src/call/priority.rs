//! Priority of a call, and its order in a queue.

use std::time::Instant;

/// Header of a priority as a number.
pub const LEVEL: &str = "x-rerankd-priority";
/// Header of a priority as a name.
pub const NAMED: &str = "rerankd-priority";

/// Priority of a call, set by the caller: 0 is the most urgent, 9 the least. More urgent calls begin first (`scheduler::order`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// Interactive use: a person waits for the answer.
    pub const HIGH: Self = Self(2);
    /// The default.
    pub const NORMAL: Self = Self(5);
    /// Batch work.
    pub const LOW: Self = Self(8);
    /// The least urgent level of a caller.
    pub const LAST: u8 = 9;
    /// Work that no caller waits for. Its steps are short, and it uses no cached passages.
    pub const IDLE: Self = Self(Self::LAST + 1);

    /// The priority of a level; `None` above [`Priority::LAST`].
    #[must_use]
    pub const fn new(level: u8) -> Option<Self> {
        if level > Self::LAST { None } else { Some(Self(level)) }
    }

    /// The priority in the headers: `level`, a number from 0 to 9, or `name`, which is low, normal or high. The
    /// level takes precedence.
    ///
    /// # Errors
    /// The unreadable header, and its valid values.
    pub fn stated(level: Option<&str>, name: Option<&str>) -> Result<Self, (&'static str, String)> {
        if let Some(text) = level {
            let found = text.parse().ok().and_then(Self::new);
            return found.ok_or_else(|| (LEVEL, format!("must be a number from 0 to 9, is {:?}", beginning(text))));
        }
        let Some(name) = name else { return Ok(Self::NORMAL) };
        match name.to_ascii_lowercase().as_str() {
            "normal" => Ok(Self::NORMAL),
            "low" => Ok(Self::LOW),
            "high" => Ok(Self::HIGH),
            _ => Err((NAMED, format!("must be low, normal or high, is {:?}", beginning(name)))),
        }
    }

    /// Level, 0 to 9.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

/// The beginning of a header, for an error.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(40)]
}

/// The order of work in a queue, the most urgent first: by priority, then by deadline. Work without a deadline comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency {
    priority: Priority,
    has_no_deadline: bool,
    deadline: Option<Instant>,
}

impl Urgency {
    /// The order of work with this priority and deadline.
    #[must_use]
    pub const fn new(priority: Priority, deadline: Option<Instant>) -> Self {
        Self { priority, has_no_deadline: deadline.is_none(), deadline }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_at_nine() {
        assert_eq!(Priority::new(9).map(Priority::level), Some(9));
        assert_eq!(Priority::new(10), None);
        assert!(Priority::HIGH < Priority::default() && Priority::default() < Priority::LOW);
        assert!(Priority::new(Priority::LAST).is_some_and(|last| last < Priority::IDLE));
    }
}
