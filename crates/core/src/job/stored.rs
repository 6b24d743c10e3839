//! [`StoredWeights`]: how a checkpoint stores its weights, as `quantization_config` of its config says, and the keys that mean the same.

use serde_json::Value;

use super::error::REHEARSE;
use super::{JobError, JobErrorKind, QuantizedWeights, keys};

/// Modules that a config may name as whole, for nothing else is ever packed there.
const NEVER_PACKED: [&str; 3] = ["lm_head", "embed_tokens", "model.embed_tokens"];

/// The keys that mean how weights are stored, with their values as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWeights {
    /// Whether it is of GPTQ.
    is_gptq: bool,
    rows: Vec<(&'static str, String)>,
    /// The built-in model that the sizes are of, where a name alone told of the checkpoint.
    pub(crate) sizes_of: Option<String>,
}

impl StoredWeights {
    /// What the end of a name tells, which packs as most checkpoints do: of the whole model whose sizes stand for its own.
    pub(super) fn by_name(word: &str, bits: u64, whole: &str) -> Self {
        let is_gptq = word == "gptqmodel";
        let mut rows = vec![(keys::QUANTIZATION, format!("\"{word}\""))];
        if is_gptq {
            rows.push((keys::GPTQ_BITS, bits.to_string()));
        }
        Self { is_gptq, rows, sizes_of: Some(whole.to_owned()) }
    }

    /// Where the keys have it from.
    pub(super) fn origin(&self) -> &'static str {
        match self.sizes_of {
            Some(_) => "the end of the model's name",
            None => "quantization_config of the model's config",
        }
    }

    /// What the value of `quantization_config` says.
    ///
    /// # Errors
    /// When weights that are stored so are not simulated.
    pub(super) fn read(quantization: &Value) -> Result<Self, JobError> {
        let words = Words(quantization);
        let rows = match words.method() {
            "gptq" => words.gptq(),
            "awq" => words.awq(),
            "bitsandbytes" => words.bitsandbytes(),
            _ => None,
        };
        let is_gptq = words.method() == "gptq";
        rows.filter(|_| !words.leaves_more_whole())
            .map(|rows| Self { is_gptq, rows, sizes_of: None })
            .ok_or_else(|| words.refused())
    }

    /// The keys, which go by who holds the layers: before transformers 5 that is AutoGPTQ.
    pub(super) fn rows(&self, is_before_5: bool) -> impl Iterator<Item = (&'static str, &str)> {
        let of_4 = self.is_gptq && is_before_5;
        self.rows.iter().map(move |(key, value)| match *key {
            keys::QUANTIZATION if of_4 => (*key, "\"gptq\""),
            key => (key, value.as_str()),
        })
    }

    /// Whether weights that are held so are of such a checkpoint.
    pub(super) fn is_of(&self, weights: QuantizedWeights) -> bool {
        let word = format!("\"{}\"", weights.name());
        self.rows.iter().any(|row| row.1 == word) || (self.is_gptq && weights == QuantizedWeights::Gptq)
    }

    /// Whether transformers casts the whole model to fp16.
    pub(super) fn casts_to_fp16(&self) -> bool {
        self.rows.iter().any(|row| row.1 == "\"awq\"")
    }
}

/// `quantization_config`
struct Words<'a>(&'a Value);

impl Words<'_> {
    fn method(&self) -> &str {
        self.0.get("quant_method").and_then(Value::as_str).unwrap_or("quantized")
    }

    fn is_on(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool) == Some(true)
    }

    fn bits(&self) -> u64 {
        let four = ["awq", "gptq", "mxfp4"].contains(&self.method()) || self.is_on("load_in_4bit");
        match self.0.get("bits").or_else(|| self.0.get("w_bit")).and_then(Value::as_u64) {
            Some(bits @ 1..=8) => bits,
            _ if four => 4,
            _ => 8,
        }
    }

    /// `group_size`, as the key has it: 0 where all inputs share a scale.
    fn group_size(&self) -> Option<(&'static str, String)> {
        let size = match self.0.get("group_size").or_else(|| self.0.get("q_group_size")) {
            Some(size) => size.as_i64()?,
            None => 128,
        };
        let size = if size == -1 { 0 } else { u64::try_from(size).ok()? };
        Some((keys::GPTQ_GROUP_SIZE, size.to_string()))
    }

    /// Of several bits, or in another layout, nothing was measured.
    fn gptq(&self) -> Option<Vec<(&'static str, String)>> {
        let is_plain =
            self.0.get("dynamic").is_none_or(|layers| layers.is_null() || layers == &Value::Object(Default::default()));
        let form = self.0.get("checkpoint_format").or_else(|| self.0.get("format")).and_then(Value::as_str);
        let is_measured =
            is_plain && [2, 4, 8].contains(&self.bits()) && matches!(form, None | Some("gptq" | "gptq_v2"));
        let rows = [(keys::QUANTIZATION, "\"gptqmodel\"".to_owned()), (keys::GPTQ_BITS, self.bits().to_string())];
        is_measured.then(|| self.group_size().map(|group| rows.into_iter().chain([group]).collect()))?
    }

    fn awq(&self) -> Option<Vec<(&'static str, String)>> {
        let form = self.0.get("version").or_else(|| self.0.get("format")).and_then(Value::as_str).unwrap_or("gemm");
        let is_measured = self.bits() == 4 && form.eq_ignore_ascii_case("gemm");
        is_measured.then(|| Some(vec![(keys::QUANTIZATION, "\"awq\"".to_owned()), self.group_size()?]))?
    }

    fn bitsandbytes(&self) -> Option<Vec<(&'static str, String)>> {
        if self.is_on("load_in_8bit") {
            return Some(vec![(keys::QUANTIZATION, "\"int8\"".to_owned())]);
        }
        let form = self.0.get("bnb_4bit_quant_type").and_then(Value::as_str).unwrap_or("fp4");
        let compute = match self.0.get(keys::BNB_4BIT_COMPUTE_DTYPE).and_then(Value::as_str).unwrap_or("float32") {
            "bfloat16" => "bf16",
            "float16" => "fp16",
            _ => "fp32",
        };
        let is_known = self.is_on("load_in_4bit") && ["nf4", "fp4"].contains(&form);
        is_known.then(|| {
            let double = self.is_on(keys::BNB_4BIT_USE_DOUBLE_QUANT).to_string();
            vec![
                (keys::QUANTIZATION, format!("\"{form}\"")),
                (keys::BNB_4BIT_USE_DOUBLE_QUANT, double),
                (keys::BNB_4BIT_COMPUTE_DTYPE, format!("\"{compute}\"")),
            ]
        })
    }

    /// Whether it names layers that are whole beside the head, or is a list of those that are not.
    fn leaves_more_whole(&self) -> bool {
        let named =
            ["modules_to_not_convert", "llm_int8_skip_modules"].iter().filter_map(|key| self.0.get(key)?.as_array());
        let is_layer = |module: &Value| !module.as_str().is_some_and(|name| NEVER_PACKED.contains(&name));
        let lists_packed = self.0.get("modules_in_block_to_quantize").is_some_and(|modules| !modules.is_null());
        lists_packed || named.flatten().any(is_layer)
    }

    /// They are neither simulated nor silently taken for whole ones.
    fn refused(&self) -> JobError {
        let method: String = self.method().chars().take(60).collect();
        let times = 16_u64.div_ceil(self.bits());
        let what = if self.leaves_more_whole() {
            "with some layers left whole are not simulated"
        } else if ["gptq", "awq", "bitsandbytes"].contains(&method.as_str()) {
            "are not simulated in this form"
        } else {
            "are not simulated"
        };
        let problem = format!("config key `quantization_config`: {method} weights {what}");
        JobError::of_kind(JobErrorKind::Unsimulated, problem).hint(format!(
            "{REHEARSE}; the config without `quantization_config` would be answered for 16-bit weights, about {times} times the bytes \
             of these"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StoredWeights, JobError> {
        StoredWeights::read(&serde_json::from_str(text).unwrap())
    }

    fn said(text: &str, is_before_5: bool) -> String {
        let stored = read(text).unwrap();
        let rows = stored.rows(is_before_5).map(|(key, value)| format!("{key}={}", value.trim_matches('"')));
        rows.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn checkpoints_are_read_as_what_they_are() {
        let gptq = r#"{"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": true}"#;
        assert_eq!(said(gptq, false), "quantization=gptqmodel gptq_bits=8 gptq_group_size=0");
        assert_eq!(said(gptq, true), "quantization=gptq gptq_bits=8 gptq_group_size=0");
        let awq = r#"{"quant_method": "awq", "bits": 4, "group_size": 64, "version": "GEMM", "modules_to_not_convert": null}"#;
        assert_eq!(said(awq, false), "quantization=awq gptq_group_size=64");
        let [double, compute] = [keys::BNB_4BIT_USE_DOUBLE_QUANT, keys::BNB_4BIT_COMPUTE_DTYPE];
        let nf4 = format!(
            r#"{{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "{double}": true,
            "{compute}": "bfloat16", "llm_int8_skip_modules": ["lm_head"]}}"#
        );
        assert_eq!(said(&nf4, false), "quantization=nf4 bnb_4bit_use_double_quant=true bnb_4bit_compute_dtype=bf16");
        assert_eq!(said(r#"{"quant_method": "bitsandbytes", "load_in_8bit": true}"#, false), "quantization=int8");
        assert!(read(awq).unwrap().casts_to_fp16() && !read(gptq).unwrap().casts_to_fp16());
    }

    #[test]
    fn other_forms_are_refused_and_say_how_much_larger_whole_weights_are() {
        let hint = |text: &str| read(text).unwrap_err().hint.unwrap();
        for (text, times) in [
            (r#"{"quant_method": "gptq", "bits": 3}"#, "about 6 times"),
            (r#"{"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down": {"bits": 8}}}"#, "about 4 times"),
            (r#"{"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}"#, "about 4 times"),
            (r#"{"quant_method": "awq", "bits": 4, "version": "gemv"}"#, "about 4 times"),
            (r#"{"quant_method": "bitsandbytes"}"#, "about 2 times"),
            (r#"{"quant_method": "fp8"}"#, "about 2 times"),
            (r#"{"quant_method": "mxfp4"}"#, "about 4 times"),
        ] {
            assert!(hint(text).contains(times) && hint(text).contains("tonnage rehearse"), "{text}");
        }
        let in_part = r#"{"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["visual"]}"#;
        assert!(read(in_part).unwrap_err().problem.contains("some layers left whole"));
    }
}
