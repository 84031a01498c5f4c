//! The help of the command line: groups of commands and headings of options. Equal options stand below the same heading
//! in every command.

use clap::{Arg, Command, CommandFactory};

use super::Cli;

/// Columns of the help.
const WIDTH: usize = 80;

/// The commands by purpose.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Serve and ask", &["serve", "rerank", "context", "compress", "warm", "health"]),
    ("Measure", &["utility", "measure", "citations", "metrics", "evaluate", "position-bias"]),
    ("Compare and study", &["compare", "calibrate", "lists", "analyse", "distil", "fit"]),
    ("Models", &["models"]),
    ("Operate", &["check-config", "token", "completions", "man", "help"]),
];

/// Headings of options with the names of their arguments. Other options stand below "Options".
const HEADINGS: [(&str, &str); 10] = [
    ("Input", "lists limit skip run queries corpus qrels split relevance_threshold concurrency unjudged"),
    (
        "Output",
        "format texts explain top_n score_threshold only_helpful template separator tag out restart \
         samples per_query mixes",
    ),
    ("Quality gate", "fail_under baseline max_drop save_baseline junit summary"),
    ("Server", "server ca cert key token_file"),
    (
        "Limits",
        "max_passage_tokens passage_tokens token_budget latency_budget_ms no_truncate max_tokens max_characters \
         max_per_source tokenizer",
    ),
    (
        "Prompts and mixture",
        "instruction examples frames scorer fusion fusion_weight embedding_weight auto_k context_order by_generator",
    ),
    ("Near-duplicates", "dedup dedup_similarity"),
    ("Compression", "compress unit ratio target_tokens ratio_spread recover compressed"),
    (RESEARCH, "design fit_budget depth orders outcome domain paper_objective seed reference measure_entropy"),
    (
        "Statistics",
        "resamples test_resamples confidence test statistics_seed weighting rule threshold either_direction aggregate \
         unconditioned",
    ),
];

/// Headings whose options only the long help of `rerank` shows.
const LONG: [&str; 5] = ["Compression", "Near-duplicates", "Prompts and mixture", RESEARCH, "Server"];

/// The option of a heading in [`LONG`] that the short help shows, too.
const ALWAYS: &str = "server";

/// Other options that only the long help of `rerank` shows.
const RARE: [&str; 2] = ["tag", "texts"];

/// Commands in which an option of a heading has another purpose.
const OTHER: [(&str, &str); 3] =
    [("compress", "unit ratio target_tokens ratio_spread"), ("serve", "scorer"), ("citations", "threshold")];

/// The heading that only `rerank` has. Other commands have options of the same names with other purposes.
const RESEARCH: &str = "Research";

/// The command line with groups and headings.
pub(super) fn command() -> Command {
    let command = Cli::command().mut_subcommands(with_headings);
    let list = groups(&command);
    command
        .max_term_width(WIDTH)
        .help_template(format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"))
}

fn groups(command: &Command) -> String {
    // The first clause, so that a command has one line.
    let clause = |about: String| about.split([':', '(']).next().unwrap_or_default().trim_end().to_owned();
    let about = |name: &str| match command.find_subcommand(name).and_then(Command::get_about) {
        Some(about) => clause(about.to_string()),
        None => "Print the help of a command".to_owned(),
    };
    let widest = GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (group, names) in GROUPS {
        let shown: Vec<&&str> =
            names.iter().filter(|name| **name == "help" || command.find_subcommand(name).is_some()).collect();
        text.push_str(&format!("{group}:\n"));
        for name in shown {
            text.push_str(&format!("  {name:widest$}  {}\n", about(name)));
        }
        text.push('\n');
    }
    text
}

fn with_headings(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let holds = |names: &str, name: &str| names.split(' ').any(|one| one == name);
    let is_other = |id: &str| OTHER.iter().any(|(command, ids)| *command == name && holds(ids, id));
    let is_rerank = name == "rerank";
    let with_heading = |argument: Arg| {
        let argument = if is_rerank && argument.get_id() == "method" { with_long_values(argument) } else { argument };
        let id = argument.get_id().as_str().to_owned();
        let heading = HEADINGS.iter().find(|(_, ids)| holds(ids, &id)).map(|(heading, _)| *heading);
        let heading = heading.filter(|heading| is_rerank || *heading != RESEARCH);
        let Some(heading) = heading.filter(|_| !argument.is_positional() && !is_other(&id)) else { return argument };
        let is_long = LONG.contains(&heading) && id != ALWAYS || RARE.contains(&id.as_str());
        argument.help_heading(heading).hide_short_help(is_rerank && is_long)
    };
    let help = command.get_after_help().map(|help| folded(&help.to_string()));
    let command = if let Some(help) = help { command.after_help(help) } else { command };
    command.mut_args(with_heading).mut_subcommands(with_headings)
}

/// Breaks long examples as a shell reads them, before an option or a redirection.
fn folded(help: &str) -> String {
    let mut text = String::new();
    for line in help.lines() {
        let mut rest = line.to_owned();
        while line.contains("rerankd ") && rest.len() > WIDTH {
            let breaks = |mark: &str| rest[..rest.floor_char_boundary(WIDTH - 1)].rfind(mark).filter(|at| *at > 8);
            let at = [" --", " > ", " | "].into_iter().filter_map(breaks).max();
            let Some(at) = at.or_else(|| breaks(" ")) else { break };
            text.push_str(&format!("{} \\\n", &rest[..at]));
            rest = format!("     {}", &rest[at..]);
        }
        text.push_str(&format!("{rest}\n"));
    }
    text.truncate(text.trim_end().len());
    text
}

/// Moves the possible values into the long help.
fn with_long_values(argument: Arg) -> Arg {
    let values: Vec<String> = argument.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect();
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    argument.hide_possible_values(true).long_help(format!("{help} [possible values: {}]", values.join(", ")))
}

#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = command();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        listed.retain(|name| *name != "help");
        listed.sort_unstable();
        let mut names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        names.sort_unstable();
        names.retain(|name| *name != "help");
        assert_eq!(listed, names);
    }

    /// A heading of an argument that no command has is a misspelt name.
    #[test]
    fn every_heading_has_its_options_and_every_long_command_has_headings() {
        let command = command();
        let mut seen = Vec::new();
        for one in command.get_subcommands() {
            let plain: Vec<&Arg> = one.get_opts().filter(|argument| argument.get_help_heading().is_none()).collect();
            assert!(plain.len() <= 14, "{} {plain:?}", one.get_name());
            seen.extend(one.get_arguments().map(|argument| argument.get_id().as_str().to_owned()));
        }
        for name in HEADINGS.iter().flat_map(|(_, names)| names.split(' ')) {
            assert!(seen.iter().any(|other| other == name), "{name}");
        }
    }

    /// clap writes a line end for "{n}".
    #[test]
    fn no_help_has_a_field_that_clap_replaces() {
        fn check(command: &Command) {
            for argument in command.get_arguments() {
                let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string);
                assert!(!help.is_some_and(|help| help.contains("{n}")), "{}", argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }

    /// Otherwise examples are broken into lines that no shell reads.
    #[test]
    fn no_line_is_wider_than_a_terminal() {
        fn wide(command: &Command, found: &mut Vec<String>) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.lines().filter(|line| line.starts_with("  ") && line.len() > WIDTH);
            found.extend(examples.map(ToOwned::to_owned));
            // Inside quotes a backslash breaks no line.
            let odd = help.lines().filter(|line| line.ends_with('\\') && line.matches('\'').count() % 2 == 1);
            found.extend(odd.map(ToOwned::to_owned));
            command.get_subcommands().for_each(|one| wide(one, found));
        }
        let mut command = command();
        let mut found: Vec<String> =
            groups(&command).lines().filter(|line| line.len() > WIDTH).map(ToOwned::to_owned).collect();
        command.build();
        wide(&command, &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn the_short_help_of_rerank_is_short() {
        let mut command = command();
        // Adds the options of every command.
        command.build();
        let help = command.find_subcommand_mut("rerank").unwrap().render_help().to_string();
        let lines = help.lines().count();
        assert!(lines <= 60 && help.contains("--explain") && !help.contains("--paper-objective"), "{lines}\n{help}");
        let long = command.find_subcommand_mut("rerank").unwrap().render_long_help().to_string();
        assert!(long.contains("--paper-objective"), "{long}");
    }
}
