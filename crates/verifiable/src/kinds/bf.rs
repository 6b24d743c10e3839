//! What a program in Brainf*ck prints.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, adopt_answer, is_same_text};

pub(super) const KIND: Kind = Kind {
    name: "bf",
    about: "what a program of eight commands prints: a word of letters",
    levels: 3,
    is_terse: false,
    make: make_program_question,
    adopt: adopt_answer,
    check: is_same_text,
};

/// One letter, three, five.
fn make_program_question(random: &mut SplitMix64, level: u32) -> Made {
    let letters = [1, 3, 5][level as usize - 1];
    let word: String = (0..letters).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
    let program = write_program(random, &word);
    let text = format!(
        "A program in Brainf*ck: > and < move between cells, + and - change a cell, [ and ] loop while the cell is not 0, \
         and . prints the cell as ASCII. What does this program print?\n{program}"
    );
    Made::new(text, word)
}

/// A product in a loop for each letter, or steps from the letter before, by chance.
fn write_program(random: &mut SplitMix64, word: &str) -> String {
    let mut program = String::new();
    let mut before: Option<u8> = None;
    for letter in word.bytes() {
        match before {
            Some(before) if random.below(2) == 0 || before == letter => {
                let (sign, times) = if letter >= before { ("+", letter - before) } else { ("-", before - letter) };
                program += &sign.repeat(times.into());
            }
            _ => {
                // The cell is emptied, and its neighbour counts down.
                let factor = 7 + random.below(5) as u8;
                let (times, rest) = (letter / factor, letter % factor);
                let (times, rest) = (usize::from(times), usize::from(rest));
                program += &format!("[-]>{}[<{}>-]<{}", "+".repeat(factor.into()), "+".repeat(times), "+".repeat(rest));
            }
        }
        program.push('.');
        before = Some(letter);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program of two cells; `None` after too many steps.
    fn run_program(program: &str) -> Option<String> {
        let program: Vec<char> = program.chars().collect();
        let (mut cells, mut cell, mut at, mut out) = ([0_u8; 8], 0, 0, String::new());
        for _ in 0..100_000 {
            let Some(command) = program.get(at) else { return Some(out) };
            match command {
                '>' => cell += 1,
                '<' => cell -= 1,
                '+' => cells[cell] = cells[cell].wrapping_add(1),
                '-' => cells[cell] = cells[cell].wrapping_sub(1),
                '.' => out.push(char::from(cells[cell])),
                '[' if cells[cell] == 0 => at += program[at..].iter().position(|one| *one == ']')?,
                ']' if cells[cell] != 0 => at -= program[..at].iter().rev().position(|one| *one == '[')? + 1,
                _ => {}
            }
            at += 1;
        }
        None
    }

    #[test]
    fn programs_print_their_answers() {
        for seed in 0..300 {
            let question = KIND.question(1 + seed as u32 % 3, seed);
            let program = question.text.lines().last().unwrap();
            assert_eq!(run_program(program).as_deref(), Some(question.answer.as_str()), "{program}");
        }
    }
}
