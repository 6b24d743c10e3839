//! [`Setting`]: on what and with what the job ran, as far as its log shows: advice names what is there.

use crate::text::{has_phrase, has_word};

/// The framework whose flags are advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framework {
    /// Hugging Face's Trainer and what is built on it.
    Trainer,
    DeepSpeed,
    Fsdp,
    Lightning,
    Fairseq,
    Megatron,
    /// TensorFlow and Keras.
    TensorFlow,
    Jax,
    /// Ray: RL, Tune and Train.
    Ray,
    Vllm,
    Sglang,
    /// Interfaces for diffusion models: ComfyUI, the web UI.
    ComfyUi,
    Ultralytics,
    Mmcv,
    /// Trainers of kohya.
    Kohya,
}

/// What a framework's logs and paths have, as words: the most telling first, and last those that others load beside them,
/// as TensorBoard does TensorFlow.
const FRAMEWORKS: &[(Framework, &[&str])] = &[
    (Framework::Vllm, &["/vllm/", "vllm.", "vLLM", "vllm serve"]),
    (Framework::Sglang, &["/sglang/", "sglang."]),
    (Framework::ComfyUi, &["ComfyUI", "comfy/", "comfy\\", "stable-diffusion-webui", "webui.py"]),
    (Framework::Kohya, &["kohya", "sd-scripts", "train_network.py", "sdxl_train"]),
    (Framework::Fairseq, &["fairseq"]),
    // Not the model of that name, which others train: `MegatronBert`.
    (Framework::Megatron, &["megatron/", "megatron.", "Megatron-"]),
    (Framework::Ultralytics, &["ultralytics", "yolov5", "yolov7"]),
    (Framework::Mmcv, &["mmcv", "mmengine", "mmdet"]),
    (Framework::Lightning, &["lightning/", "pytorch_lightning", " - CUDA_VISIBLE_DEVICES: ["]),
    (Framework::Ray, &["ray::", "/ray/", "verl", "openrlhf", "OpenRLHF", "ray.exceptions"]),
    (Framework::DeepSpeed, &["deepspeed", "DeepSpeed"]),
    (Framework::Fsdp, &["torch/distributed/fsdp", "FullyShardedDataParallel", "_fully_shard"]),
    (
        Framework::Trainer,
        &[
            "transformers/trainer",
            "transformers.trainer",
            "|trainer.py:",
            "'grad_norm':",
            "per_device_train_batch_size",
            "/trl/",
            "run_clm.py",
            "TrainingArguments",
            "llamafactory",
            "axolotl",
        ],
    ),
    (Framework::Jax, &["/jax/", "jaxlib", "XlaRuntimeError", "/flax/"]),
    (Framework::TensorFlow, &["tensorflow", "/keras/", "ResourceExhaustedError"]),
];

/// On what and with what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Frameworks that the log shows, in the order of the list: the most telling first.
    pub frameworks: Vec<Framework>,
    /// A path with a drive letter, or an error code of Windows, was seen.
    pub windows: bool,
    /// An AMD GPU.
    pub amd: bool,
    /// An Apple GPU.
    pub apple: bool,
    /// A line of slurmstepd or srun was seen.
    pub slurm: bool,
    /// A container: Docker, Kubernetes, Colab.
    pub container: bool,
    /// Paths of Google Colab (`/content`) were seen.
    pub colab: bool,
    /// Expandable segments are on already, or not to be had here.
    pub no_expandable: bool,
    /// Ranks on several machines.
    pub several_nodes: bool,
    /// Optimizer states or weights are kept in the host's memory.
    pub offload: bool,
    /// How many ranks there are, where it is stated.
    pub world: Option<u32>,
    /// A launcher says that it starts one process alone.
    pub single: bool,
    /// PyTorch is older than 2.0, which knows no expandable segments.
    pub old_torch: bool,
}

impl Setting {
    /// Learns from a part of a log.
    pub(crate) fn learn(&mut self, text: &str) {
        for (framework, words) in FRAMEWORKS {
            if !self.frameworks.contains(framework) && words.iter().any(|word| has_word(text, word)) {
                self.frameworks.push(*framework);
            }
        }
        self.frameworks.sort_by_key(|framework| FRAMEWORKS.iter().position(|row| row.0 == *framework));
        let any = |words: &[&str]| words.iter().any(|word| has_phrase(text, word));
        self.windows |= any(&["C:\\", "D:\\", "E:\\", "F:\\", "G:\\", "C:/Users", "WinError", "Scripts\\", ".dll\""]);
        self.amd |= any(&["HIP error", "HIP out of memory", "rocm", "ROCm", "hipError", "HSA_", "amdgpu"]);
        self.apple |= any(&["MPS backend", "mps:0", "MPSNDArray", "/Users/", "Invalid buffer size: "]);
        self.slurm |= any(&["slurmstepd", "srun: ", "SLURM_", "sbatch"]);
        self.colab |= any(&["/content/", "google.colab", "colab"]);
        self.container |= any(&["docker", "/workspace/", "kubectl", "/dev/shm", "OOMKilled", "kubelet"]) || self.colab;
        self.no_expandable |=
            any(&["expandable_segments:True", "expandable_segments not supported"]) && !advised_only(text);
        self.several_nodes |=
            any(&["nnodes=2", "nnodes 2", "nnodes=4", "nnodes 4", "node_rank=1", "nnodes=8", "--nnodes=$"]);
        self.offload |=
            any(&["CPUAdam", "cpu_adam", "offload_optimizer", "offload_param", "cpu_offload", "ZeRO-Offload"]);
        let world = ["world_size=", "world_size: ", "World size: ", "WORLD_SIZE=", "world size ", " nranks "];
        let stated = world.iter().filter_map(|words| crate::text::integer_after(text, words)?.try_into().ok()).max();
        self.world = self.world.max(stated);
        // Lightning's and DeepSpeed's words.
        self.single |= any(&["GLOBAL_RANK: 0, MEMBER: 1/1", "Starting with 1 processes"])
            || crate::text::integer_after(text, "dist_world_size=") == Some(1);
        self.old_torch |= any(&["already allocated;"]) && !any(&["reserved in total"]);
    }

    /// Adds what another log of the job shows.
    pub(crate) fn join(&mut self, other: &Self) {
        for framework in &other.frameworks {
            if !self.frameworks.contains(framework) {
                self.frameworks.push(*framework);
            }
        }
        self.frameworks.sort_by_key(|framework| FRAMEWORKS.iter().position(|row| row.0 == *framework));
        self.windows |= other.windows;
        self.amd |= other.amd;
        self.apple |= other.apple;
        self.slurm |= other.slurm;
        self.container |= other.container;
        self.colab |= other.colab;
        self.no_expandable |= other.no_expandable;
        self.several_nodes |= other.several_nodes;
        self.offload |= other.offload;
        self.single |= other.single;
        self.old_torch |= other.old_torch;
        self.world = self.world.max(other.world);
    }

    /// Whether the log shows it.
    pub fn has(&self, framework: Framework) -> bool {
        self.frameworks.contains(&framework)
    }
}

/// PyTorch's own message advises the setting: that it stands there does not mean that it was set.
fn advised_only(text: &str) -> bool {
    let all = crate::text::places_of(text, "expandable_segments:True").count();
    let advised = crate::text::places_of(text, "CONF=expandable_segments:True to avoid").count();
    all > 0 && all == advised
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(text: &str) -> Setting {
        let mut setting = Setting::default();
        setting.learn(text);
        setting
    }

    #[test]
    fn words_within_others_show_nothing() {
        let texts = [
            "to avoid your system being overloaded, please tune it",
            "the array::begin of a bitarray.exceptions module in /data/discomfy/one",
            "mytrainer.py:12 of src/trainer.py:7",
            "MegatronBertForPreTraining from nvidia/megatron-bert-uncased",
            "LOCAL_RANK: 0",
        ];
        for text in texts {
            assert_eq!(learned(text).frameworks, [], "{text}");
        }
    }

    #[test]
    fn what_a_log_shows_is_learned() {
        for (framework, words) in FRAMEWORKS {
            for word in *words {
                assert!(learned(word).has(*framework), "{word}");
            }
        }
        assert!(
            learned("File \"C:\\train.py\"").windows
                && !learned("try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid f").no_expandable
        );
        assert!(learned("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True").no_expandable);
    }
}
