//! JSON, as much as a line of a script needs: numbers are floats, which hold every size below 8 PiB exactly.

/// Deeper nesting than any script has.
const MOST_DEPTH: usize = 16;

/// A value of JSON; numbers as they were written.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    /// Keys in the order of the file.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The value of one whole text.
    ///
    /// # Errors
    /// When it is no JSON; says what was expected and at which byte.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { text: text.as_bytes(), at: 0 };
        let value = reader.value(0)?;
        reader.blanks();
        if reader.at == text.len() { Ok(value) } else { Err(reader.expected("the end")) }
    }

    /// The value under `key` of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(pairs) => pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The number this is.
    pub fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// The text this is.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The elements of a list, of anything else none.
    pub fn list(&self) -> &[Self] {
        if let Self::List(list) = self { list } else { &[] }
    }

    /// The pairs of an object, of anything else none.
    pub fn pairs(&self) -> &[(String, Self)] {
        if let Self::Object(pairs) = self { pairs } else { &[] }
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn expected(&self, what: &str) -> String {
        format!("expected {what} at byte {}", self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.blanks();
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > MOST_DEPTH {
            return Err(self.expected("less nesting"));
        }
        self.blanks();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, String> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Json, String> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        let number = std::str::from_utf8(&rest[..length]).ok().and_then(|text| text.parse::<f64>().ok());
        match number {
            Some(number) if number.is_finite() => {
                self.at += length;
                Ok(Json::Number(number))
            }
            _ => Err(self.expected("a value")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, String> {
        self.at += 1;
        let mut list = Vec::new();
        if self.take(b']') {
            return Ok(Json::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(Json::List(list));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        self.at += 1;
        let mut pairs = Vec::new();
        if self.take(b'}') {
            return Ok(Json::Object(pairs));
        }
        loop {
            self.blanks();
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.expected("`:`"));
            }
            pairs.push((key, self.value(depth + 1)?));
            if self.take(b'}') {
                return Ok(Json::Object(pairs));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a string"));
        }
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    let character = self.escape()?;
                    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) => {
                    bytes.push(byte);
                    self.at += 1;
                }
                None => return Err(self.expected("`\"`")),
            }
        }
        self.at += 1;
        String::from_utf8(bytes).map_err(|_| self.expected("UTF-8"))
    }

    fn escape(&mut self) -> Result<char, String> {
        let kind = self.text.get(self.at + 1).copied();
        self.at += 2;
        Ok(match kind {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'u') => return self.code_point(),
            Some(other @ (b'"' | b'\\' | b'/')) => char::from(other),
            _ => return Err(self.expected("an escape")),
        })
    }

    fn code_point(&mut self) -> Result<char, String> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) || !self.text[self.at..].starts_with(b"\\u") {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        self.at += 2;
        let second = self.hex()?;
        let joined = 0x1_0000 + ((first - 0xd800) << 10) + (second.wrapping_sub(0xdc00) & 0x3ff);
        Ok(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        code.ok_or_else(|| self.expected("four hexadecimal digits before"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_values() {
        let value = Json::parse(r#" {"a": [1, -2.5e3, true, null], "b": "x\n\u00e9\ud83d\ude00é"} "#).unwrap();
        assert_eq!(value.get("a").unwrap().list()[1], Json::Number(-2500.0));
        assert_eq!(value.get("b").unwrap().text(), Some("x\né😀é"));
    }

    #[test]
    fn refuses_what_is_none() {
        for text in ["", "{", "[1,]", "{\"a\"}", "1 2", "nul", "\"a", "\"\\u12", "\"\\q\"", "1e999", "-"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
    }
}
