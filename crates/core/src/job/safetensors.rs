//! What a safetensors file says it holds, to check a simulated parameter count against the published weights.

use crate::job::JobErrorKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::JobError;
use crate::limit::SAFETENSORS_HEADER_BYTES;

/// The tensors of one safetensors file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Elements in all tensors; a tied weight is stored once.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Elements by dtype, under the format's names (`BF16`, `F32`).
    pub by_dtype: BTreeMap<String, u64>,
}

/// The index of a model whose weights are spread over several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightIndex {
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Elements of all tensors, where the writer says (`save_pretrained` of transformers 5.17).
    pub parameters: Option<u64>,
    /// How many tensors there are.
    pub tensors: usize,
    /// The files they are in.
    pub files: BTreeSet<String>,
}

#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Elements,
    data_offsets: (u64, u64),
}

/// What is known of a tensor of any dtype.
#[derive(Deserialize)]
struct Extent {
    data_offsets: (u64, u64),
}

/// How many elements a shape has; `None` where that overflows.
struct Elements(Option<u64>);

/// Reads the beginning of a safetensors file: 8 bytes of header length, then the header. `bytes` may go on after it.
///
/// # Errors
/// When the header is cut short, over the limit, no JSON, or a tensor's shape, dtype and bytes disagree.
pub fn parse_header(bytes: &[u8]) -> Result<Weights, JobError> {
    let mut weights = Weights::default();
    each_tensor(
        bytes,
        |name, entry: TensorEntry| if is_buffer(name) { Ok(()) } else { add_tensor(&mut weights, entry) },
    )?;
    Ok(weights)
}

/// The bytes that follow the header, by what it says of the tensors, of whatever dtypes they are.
///
/// # Errors
/// When the header is cut short, over the limit or no JSON.
pub fn data_bytes(bytes: &[u8]) -> Result<u64, JobError> {
    let mut end = 0;
    each_tensor(bytes, |_, entry: Extent| {
        end = end.max(entry.data_offsets.1);
        Ok(())
    })?;
    Ok(end)
}

/// Reads the tensors one by one and keeps none: a header at its limit has two million.
fn each_tensor<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
    each: impl FnMut(&str, T) -> Result<(), String>,
) -> Result<(), JobError> {
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| broken("shorter than its length field"))?;
    let length = u64::from_le_bytes(*length);
    if length > SAFETENSORS_HEADER_BYTES {
        return Err(broken(format!(
            "a header of {length} bytes is over the format's limit of {SAFETENSORS_HEADER_BYTES}"
        )));
    }
    let header = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    let header = header.ok_or_else(|| broken(format!("the header of {length} bytes is cut short")))?;
    let mut json = serde_json::Deserializer::from_slice(header);
    let read = Tensors { each, entry: PhantomData }.deserialize(&mut json).and_then(|()| json.end());
    read.map_err(|error| broken(error.to_string()))
}

/// The header's object, each entry of which goes to `each`.
struct Tensors<T, F> {
    each: F,
    entry: PhantomData<T>,
}

impl<'a, T: Deserialize<'a>, F: FnMut(&str, T) -> Result<(), String>> DeserializeSeed<'a> for Tensors<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a, T: Deserialize<'a>, F: FnMut(&str, T) -> Result<(), String>> Visitor<'a> for Tensors<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<M: MapAccess<'a>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let entry = map.next_value()?;
            (self.each)(&name, entry).map_err(|problem| Error::custom(format!("tensor `{name}`: {problem}")))?;
        }
        Ok(())
    }
}

impl<'a> Deserialize<'a> for Elements {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl<'a> Visitor<'a> for Sizes {
            type Value = Elements;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of sizes")
            }

            fn visit_seq<S: SeqAccess<'a>>(self, mut sizes: S) -> Result<Elements, S::Error> {
                let mut product = Some(1_u64);
                while let Some(size) = sizes.next_element::<u64>()? {
                    product = product.and_then(|product| product.checked_mul(size));
                }
                Ok(Elements(product))
            }
        }
        json.deserialize_seq(Sizes)
    }
}

/// Buffers that old checkpoints hold and transformers ignores as it loads (`_keys_to_ignore_on_load_unexpected`): GPT-2's
/// causal masks, positions, rotary frequencies. GPT-2's attention itself has no `bias`, only its `c_attn` and `c_proj`.
fn is_buffer(name: &str) -> bool {
    let names = [".attn.bias", ".attn.masked_bias", "position_ids", "rotary_emb.inv_freq"];
    names.iter().any(|end| name.ends_with(end))
}

/// Reads a `model.safetensors.index.json`.
///
/// # Errors
/// When the text is no such index.
pub fn parse_index(text: &str) -> Result<WeightIndex, JobError> {
    #[derive(Deserialize)]
    struct Index {
        metadata: Metadata,
        weight_map: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct Metadata {
        // Some writers print it as a float.
        total_size: f64,
        #[serde(default)]
        total_parameters: Option<u64>,
    }
    let index: Index = serde_json::from_str(text)
        .map_err(|error| JobError::of_kind(JobErrorKind::Unreadable, format!("safetensors index: {error}")))?;
    let bytes = index.metadata.total_size;
    if !(0.0..=MAX_TOTAL_BYTES).contains(&bytes) || bytes.fract() != 0.0 {
        return Err(JobError::of_kind(
            JobErrorKind::Unreadable,
            format!("safetensors index: `total_size` cannot be {bytes}"),
        ));
    }
    let tensors = index.weight_map.len();
    let parameters = index.metadata.total_parameters;
    Ok(WeightIndex { bytes: bytes as u64, parameters, tensors, files: index.weight_map.into_values().collect() })
}

/// 2^53: up to here a float holds every integer.
const MAX_TOTAL_BYTES: f64 = 9_007_199_254_740_992.0;

fn add_tensor(weights: &mut Weights, tensor: TensorEntry) -> Result<(), String> {
    let bits = dtype_bits(&tensor.dtype).ok_or_else(|| format!("unknown dtype `{}`", tensor.dtype))?;
    let elements = tensor.shape.0.ok_or("its shape overflows")?;
    let bytes = elements.checked_mul(bits).ok_or("its size overflows")?.div_ceil(8);
    let (start, end) = tensor.data_offsets;
    if end.checked_sub(start) != Some(bytes) {
        return Err(format!("{} elements of {} need {bytes} bytes, not {start} to {end}", elements, tensor.dtype));
    }
    weights.parameters = weights.parameters.checked_add(elements).ok_or("the count overflows")?;
    weights.bytes = weights.bytes.checked_add(bytes).ok_or("the size overflows")?;
    *weights.by_dtype.entry(tensor.dtype).or_default() += elements;
    Ok(())
}

/// Bits per element, by the format's names (safetensors 0.8, `Dtype`).
fn dtype_bits(name: &str) -> Option<u64> {
    Some(match name {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

fn broken(problem: impl Into<String>) -> JobError {
    JobError::of_kind(JobErrorKind::Unreadable, format!("safetensors header: {}", problem.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes
    }

    #[test]
    fn counts_the_tensors() {
        let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
            "b":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}"#;
        let weights = parse_header(&file(header)).unwrap();
        assert_eq!((weights.parameters, weights.bytes), (7, 16));
        assert_eq!(weights.by_dtype, BTreeMap::from([("BF16".to_owned(), 6), ("F32".to_owned(), 1)]));
    }

    #[test]
    fn buffers_are_no_parameters() {
        let entry = r#"{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
        let names = ["h.0.attn.bias", "h.0.attn.c_attn.bias", "bert.embeddings.position_ids"];
        let header = names.map(|name| format!("\"{name}\":{entry}")).join(",");
        assert_eq!(parse_header(&file(&format!("{{{header}}}"))).unwrap().parameters, 4);
    }

    #[test]
    fn the_end_of_the_data_needs_no_dtype() {
        let header = r#"{"__metadata__":{"a":"b"},"a":{"dtype":"of 2030","shape":[2],"data_offsets":[0,12]},
            "b":{"data_offsets":[12,16]}}"#;
        assert_eq!(data_bytes(&file(header)), Ok(16));
        assert!(data_bytes(&file(&format!("{header}x"))).is_err());
    }

    #[test]
    fn reads_an_index() {
        let text = r#"{"metadata": {"total_size": 988065536}, "weight_map": {"a": "x-1", "b": "x-2", "c": "x-2"}}"#;
        let index = parse_index(text).unwrap();
        assert_eq!((index.bytes, index.tensors, index.files.len()), (988_065_536, 3, 2));
        for broken in ["", "{}", r#"{"metadata": {"total_size": -1}, "weight_map": {}}"#] {
            assert!(parse_index(broken).unwrap_err().to_string().starts_with("safetensors index: "));
        }
    }

    #[test]
    fn refuses_what_does_not_add_up() {
        let tensor = |dtype: &str, shape: &str, offsets: &str| {
            file(&format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#))
        };
        let cases = [
            (vec![1, 2], "shorter than its length field"),
            (u64::MAX.to_le_bytes().to_vec(), "over the format's limit"),
            (9_u64.to_le_bytes().to_vec(), "cut short"),
            (file("{"), "EOF while parsing"),
            (tensor("Q4", "[1]", "[0,1]"), "unknown dtype `Q4`"),
            (tensor("F32", "[2]", "[0,4]"), "2 elements of F32 need 8 bytes, not 0 to 4"),
            (tensor("F32", "[2]", "[8,0]"), "not 8 to 0"),
            (tensor("F32", "[4294967296,4294967296]", "[0,0]"), "shape overflows"),
            (tensor("F32", "[9223372036854775807]", "[0,0]"), "size overflows"),
        ];
        for (bytes, problem) in cases {
            let error = parse_header(&bytes).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
