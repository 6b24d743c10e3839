//! A command as a shell takes it, to be pasted.

/// The words, quoted where a shell would read more into them.
pub fn shell_words(words: &[String]) -> String {
    words.iter().map(|word| quoted_word(word)).collect::<Vec<_>>().join(" ")
}

fn quoted_word(word: &str) -> String {
    // Braces alone mean nothing to a shell; with a comma or two points between them they do.
    let is_list = word.contains('{') && (word.contains(',') || word.contains(".."));
    let is_plain = |c: char| c.is_alphanumeric() || "_-./=:@%+,{}".contains(c);
    if !word.is_empty() && !is_list && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::shell_words;

    #[test]
    fn a_shell_reads_the_same_words() {
        let cases = [
            ("python t.py --lr=1e-4 {micro_batch_size}", "python t.py --lr=1e-4 {micro_batch_size}"),
            ("sh -c a\u{a0}b;c", "sh -c 'a\u{a0}b;c'"),
            ("it's", "'it'\\''s'"),
            ("{a,b}", "'{a,b}'"),
        ];
        for (words, wanted) in cases {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(shell_words(&words), wanted);
        }
        assert_eq!(shell_words(&[String::new(), "a b".to_owned()]), "'' 'a b'");
    }
}
