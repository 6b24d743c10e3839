//! [`Told`]: a JSON value that borrows from its line. Every line of a recording is read twice, and maps of texts of their own would be
//! most of what that costs.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// What stands in a line.
#[derive(Clone, Debug)]
pub(super) enum Told<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Told<'a>>),
    Object(Object<'a>),
}

/// Keys and values in the order of the text; of a key that stands twice the last holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, Told<'a>)>);

impl<'a> Object<'a> {
    pub fn get(&self, key: &str) -> Option<&Told<'a>> {
        self.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    pub fn number_at(&self, key: &str) -> Option<f64> {
        self.get(key).and_then(Told::as_f64)
    }

    pub fn text_at(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Told::as_str)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Told<'a>)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    fn into_static(self) -> Object<'static> {
        Object(self.0.into_iter().map(|(key, value)| (Cow::Owned(key.into_owned()), value.into_static())).collect())
    }
}

impl<'a> IntoIterator for Object<'a> {
    type Item = (Cow<'a, str>, Told<'a>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> Told<'a> {
    pub fn as_f64(&self) -> Option<f64> {
        if let Self::Number(number) = self { number.as_f64() } else { None }
    }

    pub fn as_u64(&self) -> Option<u64> {
        if let Self::Number(number) = self { number.as_u64() } else { None }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub fn as_object(&self) -> Option<&Object<'a>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The same, which outlives its line.
    pub fn into_static(self) -> Told<'static> {
        match self {
            Self::Null => Told::Null,
            Self::Bool(is) => Told::Bool(is),
            Self::Number(number) => Told::Number(number),
            Self::Text(text) => Told::Text(Cow::Owned(text.into_owned())),
            Self::List(list) => Told::List(list.into_iter().map(Told::into_static).collect()),
            Self::Object(object) => Told::Object(object.into_static()),
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(is) => Value::Bool(*is),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone().into_owned()),
            Self::List(list) => list.iter().map(Told::to_value).collect(),
            Self::Object(object) => object.iter().map(|(key, value)| (key, value.to_value())).collect(),
        }
    }
}

/// As JSON writes it, for what is said of a value that is wrong.
impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_value().fmt(f)
    }
}

impl<'de> Deserialize<'de> for Told<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Told<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Told<'de>, E> {
        Ok(Told::Null)
    }

    fn visit_bool<E>(self, is: bool) -> Result<Told<'de>, E> {
        Ok(Told::Bool(is))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Told<'de>, E> {
        Ok(Told::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Told<'de>, E> {
        Ok(Told::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Told<'de>, E> {
        Number::from_f64(number).map(Told::Number).ok_or_else(|| E::custom("a number without end"))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Told<'de>, E> {
        Ok(Told::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Told<'de>, E> {
        Ok(Told::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Told<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = sequence.next_element()? {
            list.push(item);
        }
        Ok(Told::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Told<'de>, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = map.next_key::<Told<'de>>()? {
            // Keys of JSON are texts.
            let Told::Text(key) = key else { return Err(A::Error::custom("a key that is no text")) };
            object.push((key, map.next_value()?));
        }
        Ok(Told::Object(Object(object)))
    }
}
