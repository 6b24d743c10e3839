//! vLLM, which measures the device's free memory before it takes its share.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::text::{after, compact, size};

pub(super) const START: Signature = Signature {
    name: "vllm_start",
    needles: &["on startup is less than desired GPU"],
    follow: 2,
    read: |text| {
        let text = compact(text);
        // `cuda:0` is named from 0.10 on.
        let message = after(&text, "Freememoryondevice")?;
        let (free, total) = after(message, "(")?.split_once('/')?;
        let total = size(total)?;
        // Both share a unit: `(19.77/22.05 GiB)`.
        let unit: String =
            after(message, "/")?.chars().skip_while(|c| c.is_ascii_digit() || *c == '.').take(3).collect();
        let wanted = after(message, "utilization(").and_then(|wanted| size(wanted.split_once(',')?.1));
        let free = size(&format!("{free}{unit}"));
        let cause = FailureCause::EngineStart { free, total: Some(total), wanted };
        Some(Reading { cause: Some(cause), complete: wanted.is_some() })
    },
};

pub(super) const NO_BLOCKS: Signature = Signature {
    name: "vllm_no_blocks",
    needles: &["No available memory for the cache blocks"],
    follow: 0,
    read: |text| {
        let raised = super::is_said(text, "No available memory for the cache blocks");
        let cause = FailureCause::EngineStart { free: None, total: None, wanted: None };
        if raised { Reading::whole(cause) } else { None }
    },
};
