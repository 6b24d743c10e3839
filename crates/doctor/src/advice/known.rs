//! Exceptions whose remedy is known, and nothing but their words tells them: one entry each.

/// An exception that is known.
pub(super) struct Known {
    /// One of these stands in its line.
    pub(super) words: &'static [&'static str],
    /// What to do, with the exact command where there is one.
    pub(super) remedies: &'static [(&'static str, Option<&'static str>)],
}

const fn known(words: &'static [&'static str], remedies: &'static [(&'static str, Option<&'static str>)]) -> Known {
    Known { words, remedies }
}

/// All of them; of several that fit, the first.
pub(super) const KNOWN: &[Known] = &[
    known(
        &["undefined symbol"],
        &[
            (
                "the extension was built for another PyTorch: remove it and build it against the one that is installed",
                Some("pip uninstall -y flash-attn && pip install flash-attn --no-build-isolation --no-cache-dir"),
            ),
            (
                "compare what it was built for",
                Some(
                    "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch._C._GLIBCXX_USE_CXX11_ABI)'",
                ),
            ),
        ],
    ),
    known(
        &["CUDAMismatchException", "The detected CUDA version", "Installed CUDA version"],
        &[
            (
                "nvcc and PyTorch are of different CUDA versions: install the toolkit that PyTorch was built with, or a PyTorch for that toolkit",
                Some("nvcc --version; python -c 'import torch; print(torch.version.cuda)'"),
            ),
            (
                "only where the minor version alone differs, DeepSpeed can be told not to check",
                Some("DS_SKIP_CUDA_CHECK=1"),
            ),
        ],
    ),
    known(
        &["GatedRepoError", "gated repo", "Access to model", "is restricted"],
        &[(
            "accept the model's conditions on its page, then log in with a token that may read it",
            Some("hf auth login  # or HF_TOKEN=..."),
        )],
    ),
    known(
        &["RepositoryNotFoundError", "is not a valid model identifier", "is not a local folder"],
        &[(
            "the name is wrong, the repository is private, or the path does not exist here",
            Some("hf auth whoami; ls PATH"),
        )],
    ),
    known(
        &[
            "LocalEntryNotFoundError",
            "couldn't connect to 'https://huggingface.co'",
            "OfflineModeIsEnabled",
            "MaxRetryError",
            "NameResolutionError",
            "Failed to resolve",
            "Temporary failure in name resolution",
            "Max retries exceeded",
        ],
        &[
            (
                "the node has no way to the network: fetch model and data where there is one, into a cache that nodes share",
                Some("hf download MODEL; then HF_HOME=/shared/hf HF_HUB_OFFLINE=1"),
            ),
            ("or go through the site's proxy", Some("HTTPS_PROXY=http://proxy:3128")),
        ],
    ),
    known(
        &["CommError", "wandb.errors", "UsageError: api_key not configured", "wandb: ERROR"],
        &[(
            "let runs be logged on the disk and sent later",
            Some("WANDB_MODE=offline; later: wandb sync wandb/offline-run-*"),
        )],
    ),
    known(
        &["Too many open files", "[Errno 24]", "received 0 items of ancdata"],
        &[
            ("raise the limit of open files", Some("ulimit -n 65536")),
            (
                "or let workers share tensors through files",
                Some("torch.multiprocessing.set_sharing_strategy('file_system')"),
            ),
        ],
    ),
    known(
        &[
            "HeaderTooLarge",
            "invalid header",
            "MetadataIncompleteBuffer",
            "Error while deserializing header",
            "InvalidHeaderDeserialization",
        ],
        &[(
            "the weights' file is no safetensors: a Git LFS pointer, a page of an error, or a download that was cut; fetch it anew",
            Some("ls -l *.safetensors; head -c 200 FILE; git lfs pull  # or: hf download --force-download MODEL"),
        )],
    ),
    known(
        &[
            "PytorchStreamReader failed",
            "invalid load key",
            "unpickling stack underflow",
            "Ran out of input",
            "failed finding central directory",
        ],
        &[(
            "the checkpoint is cut or no checkpoint: take the one before it, or fetch it anew; write the next aside and rename it",
            Some("ls -l checkpoint-*; head -c 100 FILE"),
        )],
    ),
    known(
        &["Expected to have finished reduction in the prior iteration"],
        &[
            ("some parameters took no part in the loss: find them", Some("TORCH_DISTRIBUTED_DEBUG=DETAIL")),
            (
                "and let DDP look for them, or freeze them",
                Some("DistributedDataParallel(..., find_unused_parameters=True)  # --ddp_find_unused_parameters true"),
            ),
        ],
    ),
    known(
        &["marked as ready twice", "mark a variable ready only once"],
        &[(
            "checkpointing that enters the graph anew and DDP's search for unused parameters exclude each other",
            Some("gradient_checkpointing_kwargs={\"use_reentrant\": False}; find_unused_parameters=False"),
        )],
    ),
    known(
        &["loss scale at", "loss scale already at minimum"],
        &[("fp16 overflows at every step: train in bf16, or with a lower rate", Some("--bf16 true --fp16 false"))],
    ),
    known(
        &[
            "libcudart.so",
            "libcublas.so",
            "libcudnn",
            "libnvrtc",
            "libnvJitLink",
            "libcusparse",
            "libcupti",
            "libtorch_cuda.so",
            "libc10",
        ],
        &[
            (
                "a library of CUDA is not found, or one of another version is: packages must be of PyTorch's CUDA version",
                Some("python -c 'import torch; print(torch.version.cuda)'; pip list | grep -i -E 'cu1|nvidia'"),
            ),
            (
                "then let the loader find it",
                Some(
                    "export LD_LIBRARY_PATH=$(python -c 'import nvidia.cuda_runtime as m; print(list(m.__path__)[0])')/lib:$LD_LIBRARY_PATH",
                ),
            ),
        ],
    ),
    known(
        &["GLIBCXX_", "CXXABI_", "GLIBC_"],
        &[(
            "the C++ library here is older than the package needs",
            Some("conda install -c conda-forge libstdcxx-ng  # before PyTorch's in LD_LIBRARY_PATH"),
        )],
    ),
    known(
        &["DLL load failed", "[WinError 126]", "[WinError 127]"],
        &[(
            "a library that the module needs is missing: install Microsoft's Visual C++ redistributable, and a build for this Python",
            Some("winget install Microsoft.VCRedist.2015+.x64"),
        )],
    ),
    known(
        &["MessageFactory' object has no attribute 'GetPrototype", "Descriptors cannot", "'google.protobuf.internal'"],
        &[(
            "packages disagree about protobuf: install one that all of them take",
            Some("pip install 'protobuf>=3.20,<5'"),
        )],
    ),
    known(
        &[
            "numpy.core.multiarray failed to import",
            "compiled using NumPy 1.x",
            "module 'numpy' has no attribute",
            "numpy.dtype size changed",
        ],
        &[("a package was built for another numpy", Some("pip install 'numpy<2'"))],
    ),
    known(
        &[
            "Error building extension",
            "Unable to find nvcc",
            "CUDA_HOME environment variable is not set",
            "CUDA_HOME does not exist",
            "Ninja is required",
        ],
        &[
            (
                "an extension is compiled at the start and cannot be: install the toolkit and ninja",
                Some("conda install -c nvidia cuda-nvcc; pip install ninja; export CUDA_HOME=$CONDA_PREFIX"),
            ),
            ("and throw away what was half built", Some("rm -rf ~/.cache/torch_extensions")),
        ],
    ),
    known(
        &["Expected all tensors to be on the same device", "found at least two devices"],
        &[(
            "the inputs or a module of the model lie on another device: move the batch to the model's",
            Some("batch = {k: v.to(model.device) for k, v in batch.items()}"),
        )],
    ),
    known(
        &["size mismatch for", "Error(s) in loading state_dict"],
        &[(
            "checkpoint and model are of different shapes: another config, vocabulary or version made the checkpoint",
            Some("model.resize_token_embeddings(len(tokenizer)) before loading; compare config.json"),
        )],
    ),
    known(
        &["CUDA_VISIBLE_DEVICES", "DefaultProcessGroup", "Default process group has not been initialized"],
        &[(
            "start it with a launcher, or initialise the process group first",
            Some("torchrun --standalone --nproc-per-node=1 train.py"),
        )],
    ),
    known(
        &[
            "environment variable RANK expected",
            "environment variable MASTER_ADDR expected",
            "environment variable WORLD_SIZE expected",
        ],
        &[(
            "the ranks' environment is missing: start it with a launcher",
            Some("torchrun --standalone --nproc-per-node=N train.py"),
        )],
    ),
    known(
        &[
            "does not appear to have a file named",
            "Can't load tokenizer",
            "Unable to load weights",
            "no file named pytorch_model.bin",
        ],
        &[(
            "the folder lacks what is loaded from it: a save that was cut, a wrong path, or an adapter without its base",
            Some("ls -l PATH"),
        )],
    ),
    known(
        &["KeyError: 'llama", "does not recognize this architecture", "Transformers does not recognize"],
        &[("the model is newer than the package", Some("pip install -U transformers"))],
    ),
    known(
        &["got an unexpected keyword argument", "cannot import name", "has no attribute"],
        &[(
            "packages are of versions that do not fit each other: the traceback's last two packages",
            Some("pip list | grep -i -E 'torch|transformers|accelerate|peft|trl|deepspeed'; pip check"),
        )],
    ),
    known(
        &["probability tensor contains either", "Expected parameter"],
        &[(
            "the model's outputs are NaN or infinite: half precision that overflows, or weights that diverged",
            Some("torch_dtype=torch.bfloat16; torch.autograd.set_detect_anomaly(True)"),
        )],
    ),
    known(
        &["element 0 of tensors does not require grad"],
        &[(
            "nothing in the graph is trained: inputs of frozen layers must require gradients where layers are checkpointed",
            Some("model.enable_input_require_grads()"),
        )],
    ),
    known(
        &[
            "expected scalar type",
            "must have the same dtype",
            "should be the same",
            "mat1 and mat2 must have the same dtype",
        ],
        &[(
            "two precisions meet: run under autocast, or cast the weights",
            Some("with torch.autocast(\"cuda\", dtype=torch.bfloat16):"),
        )],
    ),
    known(
        &[
            "mat1 and mat2 shapes cannot be multiplied",
            "must match the size of tensor",
            "shape mismatch",
            "size of tensor a",
        ],
        &[(
            "shapes do not fit: print them at the place of the traceback; a config or tokenizer of another model is the usual reason",
            None,
        )],
    ),
    known(
        &["JSONDecodeError", "Expecting value: line"],
        &[(
            "a file is no JSON or is cut: look at the one that the traceback opens",
            Some("head -c 300 FILE; ls -l FILE"),
        )],
    ),
    known(
        &["UnicodeDecodeError", "codec can't decode"],
        &[(
            "the file is of another encoding",
            Some("open(path, encoding=\"utf-8\", errors=\"replace\"); PYTHONUTF8=1"),
        )],
    ),
    known(
        &["Permission denied", "[Errno 13]"],
        &[("the user of the job may not read or write it", Some("ls -ld PATH; id"))],
    ),
    known(
        &["freeze_support()", "start a new process before the current process has finished"],
        &[(
            "where processes are spawned the script's start must be guarded",
            Some("if __name__ == \"__main__\": main()"),
        )],
    ),
    known(
        &["Cannot re-initialize CUDA in forked subprocess"],
        &[(
            "workers that use CUDA must be spawned, not forked",
            Some("torch.multiprocessing.set_start_method(\"spawn\")"),
        )],
    ),
    known(
        &["Weights only load failed", "weights_only"],
        &[(
            "since PyTorch 2.6 only tensors are loaded: allow the types, or trust the file",
            Some("torch.load(path, weights_only=False)  # only of files you trust"),
        )],
    ),
    known(
        &["FlashAttention only supports Ampere", "flash_attn", "FlashAttention2 has been toggled on"],
        &[("the GPU or the environment has no FlashAttention", Some("attn_implementation=\"sdpa\""))],
    ),
];
