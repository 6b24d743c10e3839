//! How long files and functions may be; those at the end of a file that test it do not count.

/// Lines of a file without its tests: more than this is two files.
const MAX_FILE: usize = 400;
/// Lines of a function.
const MAX_FUNCTION: usize = 60;

/// What of a file is too long.
pub(super) fn too_long(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).collect();
    let file = (lines.len() > MAX_FILE).then(|| format!("{path}: {} lines; split it at {MAX_FILE}", lines.len()));
    let functions = function_lengths(&lines).into_iter().filter(|(_, count)| *count > MAX_FUNCTION);
    let functions =
        functions.map(|(name, count)| format!("{path}: `{name}` has {count} lines, at most {MAX_FUNCTION}"));
    file.into_iter().chain(functions).collect()
}

/// Each function with its number of lines, as rustfmt lays them out: it ends with a brace below its first letter.
fn function_lengths<'a>(lines: &[&'a str]) -> Vec<(&'a str, usize)> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        if line.ends_with('}') || line.ends_with(';') {
            continue;
        }
        let length = lines[at..].iter().position(|line| *line == end).map_or(0, |length| length + 1);
        found.push((name, length));
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_header = before.split_whitespace().all(|word| {
        word.starts_with("pub")
            || ["const", "unsafe", "async", "extern", "\"C\"", "crate)", "super)", "in"].contains(&word)
    });
    let name = after.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    (is_header && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_function_are_those_up_to_its_brace() {
        let text = "impl A {\n    pub(crate) fn one(&self) -> u8 {\n        if x {\n        }\n        1\n    }\n\n    fn two(&self);\n}\n";
        assert_eq!(function_lengths(&text.lines().collect::<Vec<_>>()), [("one", 5)]);
        assert_eq!(function_name("    // a fn in words"), None);
    }

    #[test]
    fn what_is_too_long_is_named_and_tests_do_not_count() {
        let long = |lines: usize| format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines));
        assert!(too_long("a.rs", &long(58)).is_empty());
        assert_eq!(too_long("a.rs", &long(59)), ["a.rs: `f` has 61 lines, at most 60"]);
        assert_eq!(too_long("a.rs", &"x\n".repeat(401)), ["a.rs: 401 lines; split it at 400"]);
        assert!(too_long("a.rs", &format!("{}#[cfg(test)]\n{}", "x\n".repeat(400), long(99))).is_empty());
    }
}
