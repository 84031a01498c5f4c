//! Lexical agreement of an answer with references: the baselines of the table.

fn normalised(text: &str) -> Vec<String> {
    let plain: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    plain.split_whitespace().filter(|word| !["a", "an", "the"].contains(word)).map(str::to_owned).collect()
}

pub fn exact_match(answer: &str, references: &[String]) -> f64 {
    let answer = normalised(answer);
    f64::from(u8::from(references.iter().any(|reference| normalised(reference) == answer)))
}

fn best(answer: &str, references: &[String], score: impl Fn(&[String], &[String]) -> f64) -> f64 {
    let answer = normalised(answer);
    references.iter().map(|reference| score(&answer, &normalised(reference))).fold(0.0, f64::max)
}

fn harmonic(common: usize, left: usize, right: usize) -> f64 {
    if common == 0 { 0.0 } else { 2.0 * common as f64 / (left + right) as f64 }
}

pub fn token_f1(answer: &str, references: &[String]) -> f64 {
    best(answer, references, |left, right| {
        let mut rest = right.to_vec();
        let common = left
            .iter()
            .filter(|word| rest.iter().position(|other| other == *word).map(|at| rest.swap_remove(at)).is_some())
            .count();
        harmonic(common, left.len(), right.len())
    })
}

pub fn rouge_l(answer: &str, references: &[String]) -> f64 {
    best(answer, references, |left, right| {
        let mut row = vec![0; right.len() + 1];
        for word in left {
            let mut diagonal = 0;
            for (at, other) in right.iter().enumerate() {
                let above = row[at + 1];
                row[at + 1] = if word == other { diagonal + 1 } else { above.max(row[at]) };
                diagonal = above;
            }
        }
        harmonic(row[right.len()], left.len(), right.len())
    })
}
