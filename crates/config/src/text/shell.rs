//! A shell script as the words of its commands: quotes taken off, lines that end in `\` joined, what the script sets filled in.

use super::arithmetic::evaluate;
use super::script::Script;

/// A word of a command, its quotes taken off and what the script sets filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    pub text: String,
    /// Where it begins in the script, in bytes.
    pub at: usize,
}

/// The words of a command, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    pub words: Vec<Word>,
}

/// What a script sets a name to.
enum Value {
    Text(String),
    List(Vec<Word>),
}

const MOST_NAMES: usize = 1000;
/// Elements of one `NAME=( ... )`; those beyond are left out.
const MOST_ELEMENTS: usize = 10_000;
/// Bytes that variables may add to a script; beyond it they stay as they are written.
const MOST_ADDED: usize = 4 << 20;
/// How deep what a variable is filled with may itself hold variables.
const MOST_NESTED: usize = 16;

/// The commands of `text`. Of an `if` whose condition compares what the script sets, only the part that is run.
pub fn shell_lines(text: &str) -> Vec<Line> {
    let mut shell = Shell { room: MOST_ADDED, ..Shell::default() };
    let mut script = Script::new(text);
    while script.peek(0).is_some() {
        let words = shell.read_command(&mut script);
        shell.end_command(words);
    }
    shell.lines
}

/// Words as they are put together.
#[derive(Default)]
struct Words {
    done: Vec<Word>,
    open: Option<Word>,
}

impl Words {
    fn open_at(&mut self, at: usize) -> &mut String {
        &mut self.open.get_or_insert_with(|| Word { text: String::new(), at }).text
    }

    fn close(&mut self) {
        self.done.extend(self.open.take());
    }

    /// The name and whether it is added to, of a word that is so far only `NAME=` or `NAME+=`.
    fn assigned(&self) -> Option<(String, bool)> {
        let text = self.open.as_ref()?.text.strip_suffix('=')?;
        let name = text.strip_suffix('+').unwrap_or(text);
        is_name(name).then(|| (name.to_owned(), name != text))
    }
}

#[derive(Default)]
struct Shell {
    lines: Vec<Line>,
    variables: Vec<(String, Value)>,
    branches: Vec<Branch>,
    room: usize,
}

/// An `if` that is open: whether a part of it was run, and whether this one is; nothing where that is not known.
struct Branch {
    was_run: Option<bool>,
    is_run: Option<bool>,
}

impl Shell {
    /// The words up to the end of a command.
    fn read_command(&mut self, script: &mut Script) -> Vec<Word> {
        let mut words = Words::default();
        while let Some(c) = script.peek(0) {
            match c {
                '#' if words.open.is_none() => script.skip_comment(),
                '\n' | ';' | '&' | '|' => {
                    script.skip();
                    break;
                }
                '(' if words.assigned().is_some() => self.read_list(script, &mut words),
                _ => self.read_part(script, &mut words),
            }
        }
        words.close();
        words.done
    }

    /// Reads the elements of `NAME=( ... )` from behind its parenthesis to the closing one.
    fn read_list(&mut self, script: &mut Script, words: &mut Words) {
        let Some((name, adds)) = words.assigned() else { return };
        words.open = None;
        script.skip();
        let mut elements = Words::default();
        while let Some(c) = script.peek(0).filter(|c| *c != ')') {
            match c {
                '#' if elements.open.is_none() => script.skip_comment(),
                _ => self.read_part(script, &mut elements),
            }
        }
        script.skip();
        elements.close();
        let mut list = Vec::new();
        if adds && let Some(Value::List(before)) = self.value_of(&name) {
            list.clone_from(before);
        }
        list.append(&mut elements.done);
        list.truncate(MOST_ELEMENTS);
        if self.is_run() {
            self.set_variable(name, Value::List(list));
        }
    }

    /// A space, a quoted part, an expansion or a character.
    fn read_part(&mut self, script: &mut Script, words: &mut Words) {
        let at = script.at();
        match script.take() {
            Some('\'') => {
                let word = words.open_at(at);
                while let Some(c) = script.take().filter(|c| *c != '\'') {
                    word.push(c);
                }
            }
            Some('"') => {
                words.open_at(at);
                while let Some(c) = script.peek(0) {
                    let at = script.at();
                    script.skip();
                    match c {
                        '"' => break,
                        '\\' => read_escaped(script, words, at),
                        '$' => self.expand(script, words, at, true),
                        c => words.open_at(at).push(c),
                    }
                }
            }
            Some('\\') => read_escaped(script, words, at),
            Some('$') => self.expand(script, words, at, false),
            Some(c) if c.is_whitespace() => words.close(),
            Some(c) => words.open_at(at).push(c),
            None => {}
        }
    }

    /// What stands behind a `$`.
    fn expand(&mut self, script: &mut Script, words: &mut Words, at: usize, is_quoted: bool) {
        if script.peek(0) == Some('(') {
            script.skip();
            let inside = script.take_inside('(', ')');
            let value = inside.strip_prefix('(').and_then(|inside| inside.strip_suffix(')'));
            let value = value.and_then(|sum| evaluate(&self.expand_text(sum, 0), &|name| self.number_of(name)));
            words.open_at(at).push_str(&value.map_or_else(|| format!("$({inside})"), |value| value.to_string()));
            return;
        }
        let inside = if script.take_if('{') { script.take_inside('{', '}') } else { script.take_name() };
        let list = inside.strip_suffix("[@]").or_else(|| inside.strip_suffix("[*]"));
        if let Some(Value::List(list)) = list.and_then(|name| self.value_of(name)) {
            let list: Vec<Word> = if self.room == 0 { Vec::new() } else { list.clone() };
            self.room = self.room.saturating_sub(list.iter().map(|word| word.text.len() + 1).sum());
            let mut first = true;
            for word in list {
                if !std::mem::take(&mut first) {
                    words.close();
                }
                words.open_at(word.at).push_str(&word.text);
            }
            return;
        }
        let value = self.value_inside(&inside, 0);
        self.room = self.room.saturating_sub(value.len());
        // A value that is not quoted falls into words, but for what is assigned.
        let is_assigned = words.open.as_ref().is_some_and(|word| word.text.contains('='));
        if is_quoted || is_assigned {
            words.open_at(at).push_str(&value);
            return;
        }
        let mut rest = value.as_str();
        while let Some((part, more)) = rest.split_once(char::is_whitespace) {
            if !part.is_empty() {
                words.open_at(at).push_str(part);
            }
            words.close();
            rest = more;
        }
        if !rest.is_empty() {
            words.open_at(at).push_str(rest);
        }
    }

    /// What `NAME`, `NAME:-default` and the like are; `$NAME` where that is not known.
    fn value_inside(&self, inside: &str, depth: usize) -> String {
        let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inside.len());
        let (name, rest) = inside.split_at(end);
        let known = self.text_of(name).filter(|_| self.room > 0);
        let default = [":-", ":=", "-", "="].iter().find_map(|sign| rest.strip_prefix(sign));
        match (known, default) {
            (Some(known), _) if rest.is_empty() => known.to_owned(),
            (Some(known), Some(_)) if !known.is_empty() => known.to_owned(),
            (_, Some(default)) if depth < MOST_NESTED => self.expand_text(default, depth + 1),
            _ => format!("${name}"),
        }
    }

    /// A text with its quotes taken off and its variables filled in.
    fn expand_text(&self, text: &str, depth: usize) -> String {
        let mut script = Script::new(text);
        let mut expanded = String::new();
        let mut is_literal = false;
        while let Some(c) = script.take() {
            match c {
                '\'' => is_literal = !is_literal,
                '"' if !is_literal => {}
                '$' if !is_literal && script.peek(0) != Some('(') => {
                    let inside = if script.take_if('{') { script.take_inside('{', '}') } else { script.take_name() };
                    expanded.push_str(&self.value_inside(&inside, depth));
                }
                c => expanded.push(c),
            }
            if expanded.len() > self.room {
                return text.to_owned();
            }
        }
        expanded
    }

    fn value_of(&self, name: &str) -> Option<&Value> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn text_of(&self, name: &str) -> Option<&str> {
        match self.value_of(name)? {
            Value::Text(text) => Some(text),
            Value::List(list) => list.first().map(|word| word.text.as_str()),
        }
    }

    fn number_of(&self, name: &str) -> Option<i64> {
        self.text_of(name)?.trim().parse().ok()
    }

    fn set_variable(&mut self, name: String, value: Value) {
        self.variables.retain(|(known, _)| *known != name);
        if self.variables.len() < MOST_NAMES {
            self.variables.push((name, value));
        }
    }

    /// Whether what is read now is run, so far as that is known.
    fn is_run(&self) -> bool {
        self.branches.iter().all(|branch| branch.is_run != Some(false))
    }

    /// Takes a command: branches are opened and closed, assignments remembered.
    fn end_command(&mut self, words: Vec<Word>) {
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next_if(|word| is_of_branch(&word.text)) {
            let condition = || words.clone().map(|word| word.text).collect::<Vec<_>>();
            if self.take_branch(&word.text, condition) {
                return;
            }
        }
        if !self.is_run() {
            return;
        }
        words.next_if(|word| matches!(word.text.as_str(), "export" | "local" | "declare"));
        while let Some((name, value)) = words.peek().and_then(|word| word.text.split_once('=')) {
            if !is_name(name) {
                break;
            }
            self.set_variable(name.to_owned(), Value::Text(value.to_owned()));
            words.next();
        }
        let words: Vec<Word> = words.collect();
        if !words.is_empty() {
            self.lines.push(Line { words });
        }
    }

    /// What a word of an `if` does; whether the command ends with it.
    fn take_branch(&mut self, word: &str, condition: impl Fn() -> Vec<String>) -> bool {
        match word {
            "if" => {
                let holds = compare(&condition());
                self.branches.push(Branch { was_run: holds, is_run: holds });
            }
            "elif" => {
                let holds = compare(&condition());
                if let Some(branch) = self.branches.last_mut() {
                    branch.is_run = if branch.was_run == Some(true) { Some(false) } else { holds };
                    branch.was_run = match (branch.was_run, holds) {
                        (Some(true), _) | (_, Some(true)) => Some(true),
                        (Some(false), Some(false)) => Some(false),
                        _ => None,
                    };
                }
            }
            "else" => {
                if let Some(branch) = self.branches.last_mut() {
                    branch.is_run = branch.was_run.map(|was_run| !was_run);
                }
            }
            "fi" => drop(self.branches.pop()),
            _ => {}
        }
        matches!(word, "if" | "elif" | "fi")
    }
}

fn is_of_branch(word: &str) -> bool {
    matches!(word, "if" | "then" | "elif" | "else" | "fi")
}

/// Whether `[ A = B ]` holds, of words that are filled in; nothing of any other condition.
fn compare(condition: &[String]) -> Option<bool> {
    let [open, left, sign, right, close] = condition else { return None };
    let is_test = matches!((open.as_str(), close.as_str()), ("[", "]") | ("[[", "]]"));
    let is_plain = |text: &str| !text.contains(['$', '*', '?', '`']);
    if !is_test || !is_plain(left) || !is_plain(right) {
        return None;
    }
    match sign.as_str() {
        "=" | "==" | "-eq" => Some(left == right),
        "!=" | "-ne" => Some(left != right),
        _ => None,
    }
}

/// What stands behind a `\`: a line that goes on, with or without a carriage return, or a character as it is.
fn read_escaped(script: &mut Script, words: &mut Words, at: usize) {
    script.take_if('\r');
    match script.take() {
        Some('\n') | None => {}
        Some(c) => words.open_at(at).push(c),
    }
}

pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        let texts = |line: Line| line.words.into_iter().map(|word| word.text).collect();
        shell_lines(text).into_iter().map(texts).collect()
    }

    #[test]
    fn variables_have_defaults_and_sums() {
        let text = "A=${A:-\"Qwen/${S:-x}\"}\nB=$(((A1 + 1) * 2))\nN=512\nM=$(( N * 2 + ${N} ))\nrun $A $M \"$B\" ${N:-3} ${X} $HOME/d";
        assert_eq!(words(text), [["run", "Qwen/x", "1536", "$(((A1 + 1) * 2))", "512", "$X", "$HOME/d"]]);
    }

    #[test]
    fn lists_are_words() {
        let text = "L=(\n  a=1 # one\n  \"b=2 3\"\n)\nL+=(c)\nK=( \"${L[@]}\" d )\nrun \"${K[@]}\" \"$@\" e";
        assert_eq!(words(text), [["run", "a=1", "b=2 3", "c", "d", "$@", "e"]]);
        assert_eq!(words("O=\"a=1   b=2\"\nrun $O \"$O\" x=$O"), [["run", "a=1", "b=2", "a=1   b=2", "x=a=1   b=2"]]);
    }

    #[test]
    fn of_an_if_that_compares_only_one_part_is_run() {
        let text = |backend: &str| {
            format!(
                "b={backend}\nif [[ $b == \"x\" ]]; then\n  v=1\n  if [ $b != x ]; then v=7; fi\nelif [ $b = y ]; then\n  v=2\nelse\n  v=3\nfi\nrun $v"
            )
        };
        for (backend, value) in [("x", "1"), ("y", "2"), ("z", "3")] {
            assert_eq!(words(&text(backend)), [["run", value]], "{backend}");
        }
        // What cannot be told is read as it stands.
        assert_eq!(words("if [ -f a ]; then\nv=1\nfi\nrun $v"), [["run", "1"]]);
    }

    #[test]
    fn no_script_grows_without_end() {
        let doubling: String = (0..60).map(|_| "a=$a$a\nL=(\"${L[@]}\" \"${L[@]}\")\n").collect();
        let lines = shell_lines(&format!("a=xxxxxxxx\nL=(y z)\n{doubling}run $a \"${{L[@]}}\""));
        let bytes: usize = lines.iter().flat_map(|line| &line.words).map(|word| word.text.len()).sum();
        assert!(bytes < 3 * MOST_ADDED, "{bytes}");
        for damaged in ["${", "$((", "$(", "a=(", "\"${a", "\\", "${a:-${a:-${a", "$((1/0))", "fi\nelse\nelif"] {
            shell_lines(damaged);
        }
    }
}
