//! What follows from premises: any short conclusion is right that needs two premises at least. Its truth is looked up, so there are
//! many right answers, and neither a premise itself nor a tautology is one.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, Question};

pub(super) const KIND: Kind = Kind {
    name: "propositional_logic",
    about: "a conclusion with one connective at most, which no premise alone entails",
    levels: 3,
    is_terse: false,
    make: make_deduction,
    adopt: adopt_premises,
    check: is_conclusion,
};

const VARIABLES: [char; 4] = ['P', 'Q', 'R', 'S'];
/// Where each variable is true among the 16 assignments of four.
const TRUTHS: [u16; 4] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];
const CONNECTIVES: [&str; 4] = ["&", "|", "->", "<->"];
/// Premises that are tried before the plain ones are taken.
const MOST_TRIES: u32 = 500;
/// Parentheses and negations within one another, and characters of an answer.
const MOST_DEPTH: usize = 24;
const MOST_CHARACTERS: usize = 200;
/// Premises of another program's question.
const MOST_PREMISES: usize = 32;

fn make_deduction(random: &mut SplitMix64, level: u32) -> Made {
    let variables = level as usize + 1;
    let found = (0..MOST_TRIES).find_map(|_| {
        let premises: Vec<String> =
            (0..2 + random.below(u64::from(level))).map(|_| draw_premise(random, variables)).collect();
        let start = random.index_below(2 * variables);
        let answer = find_conclusion(&premises, variables, start)?;
        Some((premises, answer))
    });
    // Modus ponens of two variables, drawn.
    let (premises, answer) = found.unwrap_or_else(|| {
        let first = random.index_below(variables);
        let (p, q) = (VARIABLES[first], VARIABLES[(first + 1) % variables]);
        (vec![format!("{p} -> {q}"), p.to_string()], q.to_string())
    });
    let lines: String = premises.iter().zip(1..).map(|(premise, number)| format!("{number}. {premise}\n")).collect();
    let text = format!(
        "Given:\n{lines}What follows from these together, but from none of them alone? Answer with a formula of at most one \
         connective, written with ~ & | -> <-> as above."
    );
    Made { facts: premises.join(";"), ..Made::new(text, answer) }
}

fn draw_literal(random: &mut SplitMix64, variables: usize) -> String {
    let sign = if random.below(3) == 0 { "~" } else { "" };
    format!("{sign}{}", VARIABLES[random.index_below(variables)])
}

fn draw_premise(random: &mut SplitMix64, variables: usize) -> String {
    if random.below(4) == 0 {
        return draw_literal(random, variables);
    }
    let connective = CONNECTIVES[random.index_below(CONNECTIVES.len())];
    format!("{} {connective} {}", draw_literal(random, variables), draw_literal(random, variables))
}

/// The first that follows, literals before others, from the literal at `start`.
fn find_conclusion(premises: &[String], variables: usize, start: usize) -> Option<String> {
    let literals: Vec<String> =
        VARIABLES[..variables].iter().flat_map(|name| [name.to_string(), format!("~{name}")]).collect();
    let pairs = literals.iter().flat_map(|left| {
        literals.iter().flat_map(move |right| ["|", "->"].map(|connective| format!("{left} {connective} {right}")))
    });
    let mut candidates: Vec<String> = literals.clone();
    candidates.rotate_left(start);
    candidates.into_iter().chain(pairs).find(|candidate| follows_from(premises.iter().map(String::as_str), candidate))
}

/// The premises of another program's text are its numbered lines, as `1. P & Q`; reasoning-gym 0.1.19 begins those after the first with a
/// full stop. It gives no answer: one is found.
fn adopt_premises(text: &str, _: Option<&str>) -> Option<Made> {
    let numbered = text.lines().filter_map(|line| {
        let (number, premise) = line.trim_start_matches('.').split_once(". ")?;
        number.parse::<u32>().ok().map(|_| premise.trim().to_owned())
    });
    let premises: Vec<String> = numbered.take(MOST_PREMISES).collect();
    let answer = find_conclusion(&premises, VARIABLES.len(), 0)?;
    Some(Made { facts: premises.join(";"), ..Made::new(text, answer) })
}

fn is_conclusion(question: &Question, answer: &str) -> bool {
    follows_from(question.facts.split(';'), answer)
}

/// Whether all premises together can be true and entail `candidate`, which none alone entails and which is not always true.
fn follows_from<'a>(premises: impl Iterator<Item = &'a str>, candidate: &str) -> bool {
    let (Some(found), true) = (Formula::parse(candidate), candidate.len() <= MOST_CHARACTERS) else { return false };
    let Some(premises) = premises.map(Formula::parse).collect::<Option<Vec<_>>>() else { return false };
    let together = premises.iter().fold(u16::MAX, |all, premise| all & premise.truth);
    let entails = |truth: u16| truth & !found.truth == 0;
    let known = premises.iter().fold(0, |all, premise| all | premise.variables);
    together != 0
        && found.connectives <= 1
        && found.variables & !known == 0
        && entails(together)
        && !entails(u16::MAX)
        && !premises.iter().any(|premise| entails(premise.truth))
}

/// A formula by what it says: where it is true.
#[derive(Clone, Copy)]
struct Formula {
    truth: u16,
    connectives: u32,
    /// A bit each.
    variables: u8,
}

impl Formula {
    fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader { text: text.trim(), depth: 0 };
        let formula = reader.read_equivalence()?;
        reader.text.is_empty().then_some(formula)
    }

    fn join_formulas(self, other: Self, truth: u16) -> Self {
        let connectives = self.connectives + other.connectives + 1;
        Self { truth, connectives, variables: self.variables | other.variables }
    }
}

/// What is left to read: `~` binds before `&`, `|`, `->` (to the right) and `<->`.
struct Reader<'t> {
    text: &'t str,
    depth: usize,
}

impl Reader<'_> {
    fn take_symbol(&mut self, symbols: &[&str]) -> bool {
        let text = self.text.trim_start();
        match symbols.iter().find_map(|symbol| text.strip_prefix(symbol)) {
            Some(rest) => {
                self.text = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn read_equivalence(&mut self) -> Option<Formula> {
        let mut left = self.read_implication()?;
        while self.take_symbol(&["<->", "\u{2194}"]) {
            let right = self.read_implication()?;
            left = left.join_formulas(right, !(left.truth ^ right.truth));
        }
        Some(left)
    }

    fn read_implication(&mut self) -> Option<Formula> {
        let left = self.read_disjunction()?;
        if !self.take_symbol(&["->", "\u{2192}"]) {
            return Some(left);
        }
        let right = self.read_deeper(Self::read_implication)?;
        Some(left.join_formulas(right, !left.truth | right.truth))
    }

    fn read_disjunction(&mut self) -> Option<Formula> {
        let mut left = self.read_conjunction()?;
        while self.take_symbol(&["|", "\u{2228}"]) {
            let right = self.read_conjunction()?;
            left = left.join_formulas(right, left.truth | right.truth);
        }
        Some(left)
    }

    fn read_conjunction(&mut self) -> Option<Formula> {
        let mut left = self.read_negation()?;
        while self.take_symbol(&["&", "\u{2227}"]) {
            let right = self.read_negation()?;
            left = left.join_formulas(right, left.truth & right.truth);
        }
        Some(left)
    }

    fn read_negation(&mut self) -> Option<Formula> {
        if self.take_symbol(&["~", "\u{ac}"]) {
            let inner = self.read_deeper(Self::read_negation)?;
            return Some(Formula { truth: !inner.truth, ..inner });
        }
        if self.take_symbol(&["("]) {
            let inner = self.read_deeper(Self::read_equivalence)?;
            return self.take_symbol(&[")"]).then_some(inner);
        }
        let name = self.text.chars().next()?;
        let at = VARIABLES.iter().position(|variable| *variable == name)?;
        self.text = self.text[name.len_utf8()..].trim_start();
        Some(Formula { truth: TRUTHS[at], connectives: 0, variables: 1 << at })
    }

    fn read_deeper(&mut self, read: fn(&mut Self) -> Option<Formula>) -> Option<Formula> {
        self.depth += 1;
        let formula = (self.depth <= MOST_DEPTH).then(|| read(self)).flatten();
        self.depth -= 1;
        formula
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_right(premises: &str, answer: &str) -> bool {
        follows_from(premises.split(';'), answer)
    }

    #[test]
    fn a_conclusion_needs_two_premises() {
        let premises = "P -> Q;P;~Q | R";
        for right in ["Q", "R", "P & Q", "(Q)", "~~R", "Q \u{2227} R", "P <-> R"] {
            assert!(is_right(premises, right), "{right}");
        }
        for wrong in [
            "P",
            "~R",
            "P -> Q",
            "~P | Q",
            "P | ~P",
            "S",
            "S | ~S",
            "Q & R & P",
            "",
            "Q R",
            "(Q",
            "Q)",
            "q",
            "P -> R -> Q",
        ] {
            assert!(!is_right(premises, wrong), "{wrong}");
        }
        assert!(!is_right("P;~P", "Q"), "of a contradiction nothing is a conclusion");
        assert!(!is_right("P -> Q;P", "R | Q"), "R stands in no premise");
    }

    #[test]
    fn premises_of_other_programs_are_read() {
        let text = "The following problem ...\nGiven:\n1. (P \u{2192} Q)\n.2. P\n.What can we conclude?";
        let question = KIND.foreign_question(text, None).unwrap();
        assert_eq!(question.answer, "Q");
        assert!(KIND.is_right(&question, "P \u{2227} Q") && !KIND.is_right(&question, "P"));
        for unread in ["Given:\n1. P -> T\n.2. P", "Given:\n1. P\n.2. ~P", "Given:\n1. P", "P -> Q\nP", ""] {
            assert_eq!(KIND.foreign_question(unread, Some("Q")), None, "{unread}");
        }
    }

    #[test]
    fn formulas_bind_as_they_are_read() {
        let truth = |text: &str| Formula::parse(text).map(|formula| formula.truth);
        assert_eq!(truth("P -> Q -> R"), truth("P -> (Q -> R)"));
        assert_eq!(truth("~P & Q | R"), truth("((~P) & Q) | R"));
        assert_eq!(truth("P <-> Q"), truth("(P -> Q) & (Q -> P)"));
        assert_eq!(truth(&"~".repeat(1000)), None);
        assert_eq!(truth(&format!("{}P{}", "(".repeat(30), ")".repeat(30))), None);
    }
}
