//! What is not known of a base in 4 or 8 bits, and of a checkpoint that has its weights packed.

use super::Caveat;
use crate::job::{JobSpec, QuantizedWeights};

/// What is not known of a quantized base: which columns are multiplied whole is the data's.
pub(super) fn quantized_base(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    Some(match job.quantization?.weights {
        QuantizedWeights::Nf4 | QuantizedWeights::Fp4 => {
            Caveat::remark("bitsandbytes", "quantized layers are those of bitsandbytes 0.50")
        }
        QuantizedWeights::Int8 => {
            let text = "LLM.int8() multiplies columns with activations beyond 6 on their own, and how many is the data's: the range \
                        allows a fiftieth of the peak";
            Caveat::widening("outliers_not_known", text, reserved / 50)
        }
        QuantizedWeights::Gptq => {
            // testdata/accuracy_gptq.txt: four of six equal, the others 2.1 and 3.9 % more.
            let text = "GPTQ's layers are in 4 bits with groups of inputs, and unpacked by Triton for each product (kernels that multiply \
                        them packed, Marlin and ExLlama, do not train); some measured jobs reserved up to 4 % more: the range allows a \
                        twentieth; gptqmodel 7, by which transformers 5 loads them, takes more: quantization = \"gptqmodel\"";
            Caveat::adding("gptq", text, reserved / 20)
        }
        QuantizedWeights::GptqModel => gptqmodel(job, reserved),
        QuantizedWeights::Awq => Caveat::remark("gptqmodel", AWQ),
    })
}

const AWQ: &str = "AWQ's layers are gptqmodel's 7.6 with backend = \"auto_trainable\" (others do not train); before 7.5 they keep inputs and \
                   repeat an unpacked weight for each row of the batch; it sets PYTORCH_ALLOC_CONF where nobody did: set `allocator` for that";

/// Dynamo compiles the unpacking for eight shapes, with and without gradients; a ninth runs eagerly, on int32.
fn gptqmodel(job: &JobSpec, reserved: u64) -> Caveat {
    let text = "GPTQ's layers are gptqmodel's 7.6 with backend = \"auto_trainable\" (others do not train), which keep each unpacked weight \
                until its backward where layers are not recomputed; it sets PYTORCH_ALLOC_CONF where nobody did: set `allocator` for that";
    if !job.use_reentrant {
        return Caveat::remark("gptqmodel", text);
    }
    let eager = "with use_reentrant some shapes may be unpacked uncompiled, and the range allows a tenth";
    Caveat::adding("gptqmodel", format!("{text}; {eager}"), reserved / 10)
}

/// What is not known of a checkpoint with packed weights of which only the name was given: Qwen2.5-72B-Instruct-AWQ has 0.4 % wider
/// layers than the whole model, so that groups divide them.
pub(super) fn sizes_by_name(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let whole = job.model.beside.stored.as_ref()?.sizes_of.as_ref()?;
    let text = format!(
        "sizes are those of {whole}, packed in groups of {}: some publishers widen layers of packed models, and the range allows a \
         hundredth; the checkpoint's own config.json tells",
        job.quantization.map_or(0, |quantization| quantization.group_size)
    );
    Some(Caveat::adding("sizes_by_name", text, reserved / 100))
}
