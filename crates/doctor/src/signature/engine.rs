//! Inference engines, which measure the device's free memory before they take their share.

use super::{Reading, Signature, is_said, says_any};
use crate::cause::FailureCause;
use crate::memory::GpuMemory;
use crate::text::{has_phrase, integer_after, read_size, size_after, size_before, text_after, without_space};
use tonnage_core::failure::Class;

fn too_little(engine: &'static str) -> Option<Reading> {
    Reading::whole(FailureCause::EngineStart { engine, free: None, total: None, wanted: None, length: None })
}

pub(super) const START: Signature = Signature {
    name: "vllm_start",
    needles: &["on startup is less than desired GPU"],
    also: &[],
    follow: 2,
    read: |text| {
        let text = without_space(text);
        // `cuda:0` is named from 0.10 on.
        let message = text_after(&text, "Freememoryondevice")?;
        let (free, total) = text_after(message, "(")?.split_once('/')?;
        let total = read_size(total)?;
        // Both share a unit: `(19.77/22.05 GiB)`.
        let unit: String =
            text_after(message, "/")?.chars().skip_while(|c| c.is_ascii_digit() || *c == '.').take(3).collect();
        let wanted = text_after(message, "utilization(").and_then(|wanted| read_size(wanted.split_once(',')?.1));
        let free = read_size(&format!("{free}{unit}"));
        let cause = FailureCause::EngineStart { engine: "vLLM", free, total: Some(total), wanted, length: None };
        Some(Reading { cause: Some(cause), complete: wanted.is_some() })
    },
};

/// What is left after the weights is too little for one sequence.
pub(super) const CACHE: Signature = Signature {
    name: "vllm_cache",
    needles: &[
        "No available memory for the cache blocks",
        "To serve at least one request with the model",
        "tokens that can be stored in KV cache",
    ],
    also: &[],
    follow: 2,
    read: |text| {
        if is_said(text, "No available memory for the cache blocks") {
            return too_little("vLLM");
        }
        if is_said(text, "The model's max seq len (") && has_phrase(text, "stored in KV cache (") {
            let length = integer_after(text, "stored in KV cache (");
            let cause = FailureCause::EngineStart { engine: "vLLM", free: None, total: None, wanted: None, length };
            return Reading::whole(cause);
        }
        if !is_said(text, "To serve at least one request with the model") {
            return None;
        }
        let text = without_space(text);
        let wanted = size_before(&text, "KVcacheisneeded");
        let free = size_after(&text, "availableKVcachememory(");
        let length = integer_after(&text, "estimatedmaximummodellengthis");
        let cause = FailureCause::EngineStart { engine: "vLLM", free, total: None, wanted, length };
        Some(Reading { cause: Some(cause), complete: length.is_some() })
    },
};

/// SGLang and Text Generation Inference, each with the flag that would help.
pub(super) const OTHERS: Signature = Signature {
    name: "engine_memory",
    needles: &["Not enough memory"],
    also: &["mem-fraction-static", "prefill tokens"],
    follow: 0,
    read: |text| {
        let engines = [("mem-fraction-static", "SGLang"), (" prefill tokens. You need to decrease", "TGI")];
        let engine = engines.into_iter().find(|(words, _)| has_phrase(text, words))?.1;
        if is_said(text, "Not enough memory") { too_little(engine) } else { None }
    },
};

/// vLLM raises this for whatever PyTorch said during its warm-up.
/// SGLang's scheduler, while it serves.
pub(super) const SLOTS: Signature = Signature {
    name: "sglang_slots",
    needles: &["ut of memory"],
    also: &["Please set a smaller number for"],
    follow: 0,
    read: |text| {
        let said = has_phrase(text, "runs out of memory. ")
            && has_phrase(text, "--max-running-requests")
            && !super::is_talk(text);
        let cause = FailureCause::Stated { class: Class::EngineCapacity, detail: None };
        if said { Reading::whole(cause) } else { None }
    },
};

pub(super) const WARM_UP: Signature = Signature {
    name: "vllm_warm_up",
    needles: &["ut of memory"],
    also: &["memory occurred when warming up"],
    follow: 0,
    read: |text| {
        let said = says_any(text, &["CUDA out of memory occurred when warming up"]);
        let memory = GpuMemory { backend: "CUDA", ..GpuMemory::default() };
        if said { Reading::whole(FailureCause::GpuMemory(memory)) } else { None }
    },
};
