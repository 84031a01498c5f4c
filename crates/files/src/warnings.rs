//! Repairs and omissions of readers, which commands print.

use std::path::Path;

use super::name;

/// Most warnings that a command lists.
const LISTED: usize = 20;

/// Warnings that name file and line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Warnings {
    listed: Vec<String>,
    more: usize,
}

impl Warnings {
    pub(crate) fn of_line(&mut self, path: &Path, line: usize, problems: impl IntoIterator<Item = String>) {
        for problem in problems {
            self.add(|| format!("{}:{line}: {problem}", name(path)));
        }
    }

    /// Adds a warning about the file as a whole.
    pub fn of_file(&mut self, path: &Path, problem: &str) {
        self.add(|| format!("{}: {problem}", name(path)));
    }

    fn add(&mut self, warning: impl FnOnce() -> String) {
        if self.listed.len() < LISTED {
            self.listed.push(warning());
        } else {
            self.more += 1;
        }
    }

    /// The first warnings, then the number of the others.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let more = (self.more > 0).then(|| format!("{} more warnings of these files", self.more));
        self.listed.iter().cloned().chain(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_many_warnings_is_counted() {
        let mut warnings = Warnings::default();
        (1..=25).for_each(|line| warnings.of_line(Path::new("f"), line, ["is odd".to_owned()]));
        let lines: Vec<String> = warnings.lines().collect();
        assert_eq!((lines.len(), lines[0].as_str()), (LISTED + 1, "f:1: is odd"));
        assert_eq!(lines[LISTED], "5 more warnings of these files");
    }
}
