//! A script as it is read: its characters with their places.

/// The text, and how far it is read.
pub struct Script {
    characters: Vec<(usize, char)>,
    next: usize,
}

impl Script {
    pub fn new(text: &str) -> Self {
        Self { characters: text.char_indices().collect(), next: 0 }
    }

    /// Goes on to the next character.
    pub fn skip(&mut self) {
        self.next += 1;
    }

    pub fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.next + ahead).map(|(_, c)| *c)
    }

    pub fn at(&self) -> usize {
        self.characters.get(self.next).map_or(0, |(at, _)| *at)
    }

    pub fn take(&mut self) -> Option<char> {
        let c = self.peek(0);
        self.next += 1;
        c
    }

    pub fn take_if(&mut self, wanted: char) -> bool {
        let is_it = self.peek(0) == Some(wanted);
        self.next += usize::from(is_it);
        is_it
    }

    pub fn skip_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.next += 1;
        }
    }

    /// What stands before the `close` that belongs to an `open` already read.
    pub fn take_inside(&mut self, open: char, close: char) -> String {
        let (mut inside, mut depth) = (String::new(), 1);
        while let Some(c) = self.take() {
            depth += usize::from(c == open);
            depth -= usize::from(c == close);
            if depth == 0 {
                break;
            }
            inside.push(c);
        }
        inside
    }

    pub fn take_name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
            name.push(c);
            self.next += 1;
        }
        name
    }
}
