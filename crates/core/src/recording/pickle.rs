//! Reads Python pickles (protocols 2 to 5) as plain data. Nothing is executed: classes and calls become
//! [`Value::Opaque`].
//!
//! Made for hostile input: every length is checked against what is left of the input, every step pushes at most
//! one value for the bytes it reads, and texts stay in the input. Values refer to each other by
//! [`ValueId`] and may be shared or even contain themselves; whoever walks them walks a fixed depth.

use std::borrow::Cow;

use crate::limit::PICKLE_VALUES;

/// What is wrong with a pickle, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {reason}")]
pub struct PickleError {
    /// Offset of the opcode that failed.
    pub offset: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// Index of a value in its [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueId(u32);

/// A Python value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An `int` of at most 64 bits with sign.
    Int(i64),
    /// A `float`
    Float(f64),
    /// A `str`
    Str(Cow<'a, str>),
    /// `bytes`, or a string of Python 2
    Bytes(&'a [u8]),
    /// A `list`, `tuple`, `set` or `frozenset`
    List(Vec<ValueId>),
    /// A `dict`, in insertion order; a key set twice is there twice
    Dict(Vec<(ValueId, ValueId)>),
    /// Anything else: a class, an instance, a larger integer
    Opaque,
}

/// A pickle that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: ValueId,
}

impl<'a> Pickle<'a> {
    /// Reads the first pickle in `bytes`.
    ///
    /// # Errors
    /// On input that is cut short, on opcodes that are unknown, and on stack errors.
    pub fn read(bytes: &'a [u8]) -> Result<Self, PickleError> {
        let mut machine = Machine::new(bytes);
        loop {
            let offset = machine.position;
            match machine.run_opcode() {
                Ok(None) => {}
                Ok(Some(root)) => return Ok(Self { values: machine.values, root }),
                Err(reason) => return Err(PickleError { offset, reason }),
            }
        }
    }

    /// The value the pickle is of.
    pub fn root(&self) -> ValueId {
        self.root
    }

    /// The value that `id` refers to.
    pub fn value(&self, id: ValueId) -> &Value<'a> {
        self.values.get(id.0 as usize).unwrap_or(&Value::Opaque)
    }

    /// The items of a list, tuple or set; nothing for any other value.
    pub fn items(&self, id: ValueId) -> &[ValueId] {
        match self.value(id) {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// What a dict has under a key; the last setting counts.
    pub fn get(&self, dict: ValueId, key: &str) -> Option<ValueId> {
        let found = self.entries(dict).iter().rev().find(|(k, _)| self.text(*k) == Some(key));
        found.map(|(_, value)| *value)
    }

    /// The entries of a dict; nothing for any other value.
    pub fn entries(&self, id: ValueId) -> &[(ValueId, ValueId)] {
        match self.value(id) {
            Value::Dict(entries) => entries,
            _ => &[],
        }
    }

    /// The text of a `str`.
    pub fn text(&self, id: ValueId) -> Option<&str> {
        match self.value(id) {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// A number that is not negative.
    pub fn unsigned(&self, id: ValueId) -> Option<u64> {
        match self.value(id) {
            Value::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }
}

type Step<T> = Result<T, &'static str>;

const TOO_MANY: &str = "more than 3,000,000 values; record fewer events: `_record_memory_history(max_entries=100000)`";
const CUT_SHORT: &str = "the input ends in the middle of a value";

/// The stack machine of Python's `pickle` module, without its power to call.
struct Machine<'a> {
    bytes: &'a [u8],
    position: usize,
    values: Vec<Value<'a>>,
    stack: Vec<ValueId>,
    /// Stack heights at open marks.
    marks: Vec<usize>,
    memo: Vec<Option<ValueId>>,
    references: usize,
}

impl<'a> Machine<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            position: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            references: 0,
        }
    }

    /// One opcode; the root when it was STOP. The letters are those of Python's `pickle.py`.
    fn run_opcode(&mut self) -> Step<Option<ValueId>> {
        match self.next_byte()? {
            b'.' => return self.pop().map(Some),
            0x80 => self.take_bytes(1).map(drop)?,
            0x95 => self.take_bytes(8).map(drop)?,
            b'(' => {
                self.marks.push(self.stack.len());
                self.check_size()?;
            }
            b'0' => self.pop().map(drop)?,
            b'1' => self.pop_mark().map(drop)?,
            b'2' => self.duplicate_top()?,
            0x98 => {}
            code @ (b'q' | b'r' | 0x94 | b'h' | b'j') => self.remember_top(code)?,
            code @ (b']' | b')' | 0x8f | b'}' | b't' | b'l' | 0x85..=0x87 | 0x91 | b'd') => {
                self.push_collection(code)?
            }
            code @ (b'a' | b'e' | 0x90 | b's' | b'u') => self.fill_collection(code)?,
            code @ (b'c' | 0x93 | b'R' | 0x81 | 0x92 | b'b' | b'Q' | 0x97) => self.push_opaque(code)?,
            code => {
                let value = self.push_scalar(code)?;
                self.push(value)?;
            }
        }
        Ok(None)
    }

    fn push_scalar(&mut self, code: u8) -> Step<Value<'a>> {
        Ok(match code {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(self.read_number(1)?),
            b'M' => Value::Int(self.read_number(2)?),
            b'J' => Value::Int(i64::from(self.read_number(4)? as i32)),
            0x8a => self.long_number(1)?,
            0x8b => self.long_number(4)?,
            b'G' => Value::Float(f64::from_be_bytes(self.take_bytes(8)?.try_into().map_err(|_| CUT_SHORT)?)),
            0x8c => self.read_string(1)?,
            b'X' => self.read_string(4)?,
            0x8d => self.read_string(8)?,
            b'C' | b'U' => Value::Bytes(self.counted_bytes(1)?),
            b'B' | b'T' => Value::Bytes(self.counted_bytes(4)?),
            0x8e | 0x96 => Value::Bytes(self.counted_bytes(8)?),
            _ => return Err("unknown opcode"),
        })
    }

    fn remember_top(&mut self, code: u8) -> Step<()> {
        let index = match code {
            b'q' | b'h' => self.read_number(1)?,
            b'r' | b'j' => self.read_number(4)?,
            _ => self.memo.len() as i64,
        };
        let index = usize::try_from(index).map_err(|_| "a memo index below zero")?;
        if matches!(code, b'h' | b'j') {
            let value = self.memo.get(index).copied().flatten().ok_or("a memo entry that was never set")?;
            self.stack.push(value);
            return self.push_reference();
        }
        // A memo entry takes at least one byte to write, so honest indices stay below the input's length.
        if index > self.bytes.len() {
            return Err("a memo index beyond the input's length");
        }
        if index >= self.memo.len() {
            if index >= PICKLE_VALUES {
                return Err(TOO_MANY);
            }
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(self.pop_top()?);
        Ok(())
    }

    fn push_collection(&mut self, code: u8) -> Step<()> {
        let value = match code {
            b'}' => Value::Dict(Vec::new()),
            b'd' => Value::Dict(pairs_of(&self.pop_mark()?)?),
            b't' | b'l' | 0x91 => Value::List(self.pop_mark()?),
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0x85..=code {
                    items.push(self.pop()?);
                }
                items.reverse();
                Value::List(items)
            }
            _ => Value::List(Vec::new()),
        };
        self.push(value)
    }

    fn fill_collection(&mut self, code: u8) -> Step<()> {
        let mut items = match code {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_mark()?,
        };
        let target = self.pop_top()?;
        match self.values.get_mut(target.0 as usize) {
            Some(Value::List(list)) if matches!(code, b'a' | b'e' | 0x90) => list.append(&mut items),
            Some(Value::Dict(dict)) if matches!(code, b's' | b'u') => dict.append(&mut pairs_of(&items)?),
            Some(Value::Opaque) => {}
            _ => return Err("items for something that takes none"),
        }
        Ok(())
    }

    /// Classes, calls, state and persistent ids: whatever they would make is opaque.
    fn push_opaque(&mut self, code: u8) -> Step<()> {
        let arguments = match code {
            b'c' => {
                self.skip_line()?;
                self.skip_line()?;
                0
            }
            0x97 => 0,
            b'Q' => 1,
            0x92 => 3,
            _ => 2,
        };
        for _ in 0..arguments {
            self.pop()?;
        }
        self.push(Value::Opaque)
    }

    fn push(&mut self, value: Value<'a>) -> Step<()> {
        let index = u32::try_from(self.values.len()).map_err(|_| TOO_MANY)?;
        self.values.push(value);
        self.stack.push(ValueId(index));
        self.check_size()
    }

    /// Values, and references to them: a memo lets one byte refer to a value again.
    fn check_size(&self) -> Step<()> {
        let is_large = |count: usize| count > PICKLE_VALUES;
        if is_large(self.values.len())
            || is_large(self.stack.len())
            || is_large(self.marks.len())
            || is_large(self.memo.len())
        {
            return Err(TOO_MANY);
        }
        Ok(())
    }

    fn pop_top(&self) -> Step<ValueId> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack[floor..].last().copied().ok_or("the stack is empty")
    }

    fn pop(&mut self) -> Step<ValueId> {
        let top = self.pop_top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_mark(&mut self) -> Step<Vec<ValueId>> {
        let height = self.marks.pop().ok_or("no mark is open")?;
        Ok(self.stack.split_off(height))
    }

    fn duplicate_top(&mut self) -> Step<()> {
        let top = self.pop_top()?;
        self.stack.push(top);
        self.push_reference()
    }

    /// One more reference to a value that is there.
    fn push_reference(&mut self) -> Step<()> {
        self.references += 1;
        if self.references > PICKLE_VALUES { Err(TOO_MANY) } else { Ok(()) }
    }

    fn next_byte(&mut self) -> Step<u8> {
        Ok(self.take_bytes(1)?[0])
    }

    fn take_bytes(&mut self, count: usize) -> Step<&'a [u8]> {
        let end = self.position.checked_add(count).ok_or(CUT_SHORT)?;
        let bytes = self.bytes.get(self.position..end).ok_or(CUT_SHORT)?;
        self.position = end;
        Ok(bytes)
    }

    /// A little-endian number of up to 8 bytes without sign.
    fn read_number(&mut self, width: usize) -> Step<i64> {
        let mut buffer = [0; 8];
        buffer[..width].copy_from_slice(self.take_bytes(width)?);
        i64::try_from(u64::from_le_bytes(buffer)).map_err(|_| "a length of more than 63 bits")
    }

    fn counted_bytes(&mut self, width: usize) -> Step<&'a [u8]> {
        let length = usize::try_from(self.read_number(width)?).map_err(|_| CUT_SHORT)?;
        self.take_bytes(length)
    }

    /// An integer with sign, little-endian, of any length.
    fn long_number(&mut self, width: usize) -> Step<Value<'a>> {
        let bytes = self.counted_bytes(width)?;
        let Some(last) = bytes.last() else { return Ok(Value::Int(0)) };
        if bytes.len() > 8 {
            return Ok(Value::Opaque);
        }
        let mut buffer = if last & 0x80 == 0 { [0; 8] } else { [0xff; 8] };
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(Value::Int(i64::from_le_bytes(buffer)))
    }

    fn read_string(&mut self, width: usize) -> Step<Value<'a>> {
        // Python may write lone surrogates, which are no characters.
        Ok(Value::Str(String::from_utf8_lossy(self.counted_bytes(width)?)))
    }

    fn skip_line(&mut self) -> Step<()> {
        let rest = &self.bytes[self.position.min(self.bytes.len())..];
        let length = rest.iter().position(|b| *b == b'\n').ok_or(CUT_SHORT)?;
        self.position += length + 1;
        Ok(())
    }
}

fn pairs_of(items: &[ValueId]) -> Step<Vec<(ValueId, ValueId)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a key without a value");
    }
    Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_shared_and_nested_values() {
        // pickle.dumps({"a": [d, d], "n": -2, "x": 2**40, "f": 1.5, "t": (True, None)}) with d = {"k": 1}, protocol 4
        let bytes = b"\x80\x04\x95B\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94]\x94(}\x94\x8c\x01k\x94K\x01sh\x03e\x8c\x01n\x94J\
                      \xfe\xff\xff\xff\x8c\x01x\x94\x8a\x06\0\0\0\0\0\x01\x8c\x01f\x94G?\xf8\0\0\0\0\0\0\x8c\x01t\x94\
                      \x88N\x86\x94u.";
        let pickle = Pickle::read(bytes).unwrap();
        let root = pickle.root();
        let list = pickle.items(pickle.get(root, "a").unwrap());
        assert_eq!(list[0], list[1]);
        assert_eq!(pickle.unsigned(pickle.get(list[0], "k").unwrap()), Some(1));
        assert_eq!(pickle.value(pickle.get(root, "n").unwrap()), &Value::Int(-2));
        assert_eq!(pickle.unsigned(pickle.get(root, "x").unwrap()), Some(1 << 40));
        assert_eq!(pickle.value(pickle.get(root, "f").unwrap()), &Value::Float(1.5));
        assert_eq!(pickle.items(pickle.get(root, "t").unwrap()).len(), 2);
    }

    #[test]
    fn refuses_hostile_input() {
        let cases: [(&[u8], usize, &str); 10] = [
            (b"", 0, CUT_SHORT),
            (b"\x80\x04", 2, CUT_SHORT),
            (b"N.", usize::MAX, ""),
            (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", 0, CUT_SHORT),
            (b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", 0, "a length of more than 63 bits"),
            (b"Nr\xff\xff\xff\xff.", 1, "a memo index beyond the input's length"),
            (b"h\x05.", 0, "a memo entry that was never set"),
            (b"(.", 1, "the stack is empty"),
            (b"}(Nu.", 3, "a key without a value"),
            (b"Na.", 1, "the stack is empty"),
        ];
        for (bytes, offset, reason) in cases {
            match Pickle::read(bytes) {
                Ok(_) => assert_eq!(offset, usize::MAX, "{bytes:?}"),
                Err(error) => assert_eq!((error.offset, error.reason), (offset, reason), "{bytes:?}"),
            }
        }
    }

    #[test]
    fn executes_nothing_and_survives_recursion() {
        // os.system("x"), then a list that contains itself, then a million open marks.
        let call = Pickle::read(b"cos\nsystem\n\x8c\x01x\x85R.").unwrap();
        assert_eq!(call.value(call.root()), &Value::Opaque);
        let cycle = Pickle::read(b"]\x94h\x00a.").unwrap();
        assert_eq!(cycle.items(cycle.root()), [cycle.root()]);
        assert!(Pickle::read(&vec![b'('; 1 << 20]).is_err());
        let mut nested = vec![b']'; 1 << 20];
        nested.extend(vec![b'a'; (1 << 20) - 1]);
        nested.push(b'.');
        assert!(Pickle::read(&nested).is_ok());
    }

    #[test]
    fn values_references_and_marks_are_bounded() {
        let count = PICKLE_VALUES + 1;
        for (begin, each) in [(&b""[..], &b"N"[..]), (b"N", b"2"), (b"", b"("), (b"N\x94", b"h\0"), (b"", b"]")] {
            let bytes = [begin, &each.repeat(count), b"."].concat();
            assert_eq!(Pickle::read(&bytes).unwrap_err().reason, TOO_MANY, "{each:?}");
        }
        assert!(Pickle::read(&[&b"r"[..], b"\xff\xff\xff\x7f"].concat()).is_err());
    }
}
