"""Measures steps of diffusion training as measure_rl.py measures those of its trainers, whose harness this imports: put that script's
folder and one with diffusers on PYTHONPATH. The loops are plain, with the statements of diffusers' own examples in their order
(examples/dreambooth/train_dreambooth_lora_flux.py and _sd3.py, examples/text_to_image/train_text_to_image*.py): accelerate's
Accelerator prepares model, optimizer and batches, latents and embeddings come with the batch in the dtype of frozen weights, or VAE and
text encoders (diffusion_encoders.py) make them in the step. Sigmas are looked up on the host, since the phantom has no numbers to find
them by.

Fields of a case (kind `diffusion`): id, model (fields of the config; `_class_name` is the class of diffusers), precision (fp32 | amp_bf16 |
amp_fp16: accelerate's mixed_precision, in whose dtype frozen weights are | bf16: weights in bf16, no mixed precision | bf16_amp), batch,
resolution (pixels; latents have an eighth), prompt_len (tokens of the prompts' embeddings), lora {r, alpha, dropout, targets}, optimizer
(adamw | adamw_fused | adamw8bit), gradient_checkpointing, grad_accum, max_grad_norm, steps, cache_latents, cache_text_embeddings (else
their encoders are in the step; of SD3's prompt CLIP makes 77 tokens), ema (ema_model | ema_model_foreach | ema_model_offload |
ema_model_foreach_offload: `--use_ema`, `--foreach_ema` and `--offload_ema`). Phases: load, input, forward, loss,
backward, clip, optimizer, zero_grad.

    measure_diffusion.py --stub --lib libtonnage_phantom.so --cases diffusion_cases.json --out truth.json
    measure_diffusion.py ... --timelines FOLDER      # every allocation and free as well
"""
import copy
import os
import sys

import diffusion_encoders
import measure_rl as harness

DEFAULTS = dict(
    id="case", kind="diffusion", model={}, precision="amp_bf16", batch=1, resolution=512, prompt_len=77, lora=None, optimizer="adamw",
    gradient_checkpointing=False, grad_accum=1, max_grad_norm=1.0, steps=2, cache_latents=True, cache_text_embeddings=True, ema=None)
MIXED = {"fp32": "no", "bf16": "no", "amp_bf16": "bf16", "bf16_amp": "bf16", "amp_fp16": "fp16"}
HALVES = {"bf16": "bfloat16", "fp16": "float16"}
TARGETS = ["to_k", "to_q", "to_v", "to_out.0"]


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def frozen_dtype(case):
    """What the scripts call weight_dtype."""
    import torch
    return getattr(torch, HALVES.get(MIXED[case["precision"]], "bfloat16" if case["precision"] == "bf16" else "float32"))


def on_meta(case):
    import diffusers
    import torch
    fields = {key: value for key, value in case["model"].items() if key != "_class_name"}
    with torch.device("meta"):
        return getattr(diffusers, case["model"]["_class_name"])(**fields)


def load_denoiser(case):
    """`model.to(device, dtype=weight_dtype)`"""
    import torch
    whole_half = case["precision"] in ("bf16", "bf16_amp")
    return on_meta(case).to(frozen_dtype(case) if case["lora"] or whole_half else torch.float32).to_empty(device="cuda")


class Average:
    """EMAModel as the scripts have it: of a model that is loaded once more, on the host."""

    def __init__(self, case):
        import torch
        from diffusers.training_utils import EMAModel
        self.is_offloaded = case["ema"].endswith("_offload")
        dtype = torch.bfloat16 if case["precision"] in ("bf16", "bf16_amp") else torch.float32
        once_more = on_meta(case).to(dtype).to_empty(device="cpu")
        self.ema = EMAModel(once_more.parameters(), foreach="_foreach" in case["ema"])
        if self.is_offloaded:
            self.ema.pin_memory()
        else:
            self.ema.to("cuda")

    def step(self, parameters):
        if self.is_offloaded:
            self.ema.to(device="cuda", non_blocking=True)
        self.ema.step(parameters)
        if self.is_offloaded:
            self.ema.to(device="cpu", non_blocking=True)


# That of the case, if it has one.
AVERAGES = []


def load(case, encoders):
    """All models in the scripts' order, and adapters as the scripts add them."""
    import torch
    from diffusers.training_utils import cast_training_params
    for part in diffusion_encoders.loading_order(case):
        if part == "denoiser":
            model = load_denoiser(case)
            AVERAGES[:] = [Average(case)] if case["ema"] else []
        else:
            encoders.load(part)
    if case["lora"]:
        from peft import LoraConfig
        lora = case["lora"]
        model.requires_grad_(False)
        model.add_adapter(LoraConfig(
            r=lora["r"], lora_alpha=lora.get("alpha", lora["r"]), lora_dropout=lora.get("dropout", 0.0), init_lora_weights="gaussian",
            target_modules=lora.get("targets", TARGETS)))
        if MIXED[case["precision"]] == "fp16":
            cast_training_params(model, dtype=torch.float32)
    if case["gradient_checkpointing"]:
        model.enable_gradient_checkpointing()
    return model


def optimizer_of(case, parameters):
    import torch
    if case["optimizer"] == "adamw8bit":
        import bitsandbytes
        return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-4)
    fused = {"fused": True} if case["optimizer"] == "adamw_fused" else {}
    return torch.optim.AdamW(parameters, lr=1e-4, **fused)


def loader(case, columns, encoders):
    """Batches of columns that were computed before, each of zeros, or of what they are computed from."""
    import torch
    row = encoders.columns(columns, case["resolution"])
    return torch.utils.data.DataLoader([row] * (case["batch"] * case["grad_accum"] * case["steps"]), batch_size=case["batch"])


class Flow:
    """Flow matching, as the scripts of Flux and SD3 train it."""

    def __init__(self, accelerator):
        from diffusers import FlowMatchEulerDiscreteScheduler
        self.accelerator, self.scheduler = accelerator, FlowMatchEulerDiscreteScheduler()

    def sample_timesteps(self, model_input):
        from diffusers.training_utils import compute_density_for_timestep_sampling
        u = compute_density_for_timestep_sampling(
            weighting_scheme="none", batch_size=model_input.shape[0], logit_mean=0.0, logit_std=1.0, mode_scale=1.29)
        self.indices = (u * self.scheduler.config.num_train_timesteps).long()
        return self.scheduler.timesteps[self.indices].to(device=model_input.device)

    def get_sigmas(self, timesteps, n_dim, dtype):
        device = self.accelerator.device
        sigmas = self.scheduler.sigmas.to(device=device, dtype=dtype)
        schedule_timesteps = self.scheduler.timesteps.to(device)
        timesteps = timesteps.to(device)
        step_indices = [(schedule_timesteps == t, int(index))[1] for t, index in zip(timesteps, self.indices)]
        sigma = sigmas[step_indices].flatten()
        while len(sigma.shape) < n_dim:
            sigma = sigma.unsqueeze(-1)
        return sigma


def flow_loss(model_pred, target, weighting):
    import torch
    loss = torch.mean((weighting.float() * (model_pred.float() - target.float()) ** 2).reshape(target.shape[0], -1), 1)
    return loss.mean()


def finish(case, phases, run, loss):
    """What all scripts do with a loss."""
    model, optimizer, lr_scheduler, accelerator = run
    phases.set("backward")
    accelerator.backward(loss)
    if accelerator.sync_gradients:
        phases.set("clip")
        accelerator.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], case["max_grad_norm"])
    phases.set("optimizer")
    optimizer.step()
    lr_scheduler.step()
    phases.set("zero_grad")
    optimizer.zero_grad()
    for average in AVERAGES if accelerator.sync_gradients else []:
        phases.set("optimizer")
        average.step(model.parameters())
    loss.detach().item()


def train_flux(case, phases, run, encoders, side):
    from diffusers import FluxPipeline
    from diffusers.training_utils import compute_loss_weighting_for_sd3
    import torch
    transformer, _, _, accelerator = run
    config, weight_dtype, vae = accelerator.unwrap_model(transformer).config, frozen_dtype(case), encoders.vae
    channels = config.in_channels // 4
    columns = {"latents": (channels, side, side), "prompt_embeds": (case["prompt_len"], config.joint_attention_dim),
               "pooled_prompt_embeds": (config.pooled_projection_dim,)}
    flow = Flow(accelerator)
    if not encoders.texts:
        text_ids = torch.zeros(case["prompt_len"], 3).to(device=accelerator.device, dtype=weight_dtype)
    phases.set("input", 1)
    for step, batch in enumerate(accelerator.prepare(loader(case, columns, encoders))):
        phases.set("input", step // case["grad_accum"] + 1)
        with accelerator.accumulate(transformer):
            if vae is not None and not case["lora"]:
                pixel_values = batch["pixel_values"].to(dtype=vae.dtype)
            if encoders.texts:
                prompt_embeds, pooled_prompt_embeds, text_ids = encoders.encode_flux(accelerator.device)
            else:
                prompt_embeds, pooled_prompt_embeds = batch["prompt_embeds"], batch["pooled_prompt_embeds"]
            if vae is None:
                model_input = batch["latents"]
            else:
                if case["lora"]:
                    pixel_values = batch["pixel_values"].to(dtype=vae.dtype)
                model_input = vae.encode(pixel_values).latent_dist.sample()
                model_input = (model_input - vae.config.shift_factor) * vae.config.scaling_factor
            model_input = model_input.to(dtype=weight_dtype)
            latent_image_ids = FluxPipeline._prepare_latent_image_ids(
                model_input.shape[0], model_input.shape[2] // 2, model_input.shape[3] // 2, accelerator.device, weight_dtype)
            noise = torch.randn_like(model_input)
            timesteps = flow.sample_timesteps(model_input)
            sigmas = flow.get_sigmas(timesteps, n_dim=model_input.ndim, dtype=model_input.dtype)
            noisy_model_input = (1.0 - sigmas) * model_input + sigmas * noise
            packed_noisy_model_input = FluxPipeline._pack_latents(
                noisy_model_input, batch_size=model_input.shape[0], num_channels_latents=model_input.shape[1],
                height=model_input.shape[2], width=model_input.shape[3])
            guidance = None
            if config.guidance_embeds:
                guidance = torch.tensor([3.5], device=accelerator.device)
                guidance = guidance.expand(model_input.shape[0])
            phases.set("forward")
            model_pred = transformer(
                hidden_states=packed_noisy_model_input, timestep=timesteps / 1000, guidance=guidance,
                pooled_projections=pooled_prompt_embeds, encoder_hidden_states=prompt_embeds, txt_ids=text_ids,
                img_ids=latent_image_ids, return_dict=False)[0]
            phases.set("loss")
            model_pred = FluxPipeline._unpack_latents(
                model_pred, height=model_input.shape[2] * 8, width=model_input.shape[3] * 8, vae_scale_factor=8)
            weighting = compute_loss_weighting_for_sd3(weighting_scheme="none", sigmas=sigmas)
            target = noise - model_input
            loss = flow_loss(model_pred, target, weighting)
            finish(case, phases, run, loss)


def train_sd3(case, phases, run, encoders, side):
    from diffusers.training_utils import compute_loss_weighting_for_sd3
    import torch
    transformer, _, _, accelerator = run
    config, weight_dtype, vae = accelerator.unwrap_model(transformer).config, frozen_dtype(case), encoders.vae
    columns = {"latents": (config.in_channels, side, side), "prompt_embeds": (case["prompt_len"], config.joint_attention_dim),
               "pooled_prompt_embeds": (config.pooled_projection_dim,)}
    flow = Flow(accelerator)
    phases.set("input", 1)
    for step, batch in enumerate(accelerator.prepare(loader(case, columns, encoders))):
        phases.set("input", step // case["grad_accum"] + 1)
        with accelerator.accumulate(transformer):
            if vae is not None and not case["lora"]:
                pixel_values = batch["pixel_values"].to(dtype=vae.dtype)
            if encoders.texts:
                prompt_embeds, pooled_prompt_embeds = encoders.encode_sd3(accelerator.device)
            else:
                prompt_embeds, pooled_prompt_embeds = batch["prompt_embeds"], batch["pooled_prompt_embeds"]
            if vae is None:
                model_input = batch["latents"]
            else:
                if case["lora"]:
                    pixel_values = batch["pixel_values"].to(dtype=vae.dtype)
                model_input = vae.encode(pixel_values).latent_dist.sample()
                model_input = (model_input - vae.config.shift_factor) * vae.config.scaling_factor
            model_input = model_input.to(dtype=weight_dtype)
            noise = torch.randn_like(model_input)
            timesteps = flow.sample_timesteps(model_input)
            sigmas = flow.get_sigmas(timesteps, n_dim=model_input.ndim, dtype=model_input.dtype)
            noisy_model_input = (1.0 - sigmas) * model_input + sigmas * noise
            phases.set("forward")
            model_pred = transformer(
                hidden_states=noisy_model_input, timestep=timesteps, encoder_hidden_states=prompt_embeds,
                pooled_projections=pooled_prompt_embeds, return_dict=False)[0]
            phases.set("loss")
            model_pred = model_pred * (-sigmas) + noisy_model_input
            weighting = compute_loss_weighting_for_sd3(weighting_scheme="none", sigmas=sigmas)
            target = model_input
            loss = flow_loss(model_pred, target, weighting)
            finish(case, phases, run, loss)


def train_unet(case, phases, run, encoders, side):
    from diffusers import DDPMScheduler
    import torch
    import torch.nn.functional as F
    unet, _, _, accelerator = run
    config, weight_dtype, vae = accelerator.unwrap_model(unet).config, frozen_dtype(case), encoders.vae
    columns = {"latents": (config.in_channels, side, side), "prompt_embeds": (case["prompt_len"], config.cross_attention_dim)}
    is_sdxl = config.addition_embed_type == "text_time"
    if is_sdxl:
        pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        columns["pooled_prompt_embeds"] = (pooled,)
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
    phases.set("input", 1)
    for step, batch in enumerate(accelerator.prepare(loader(case, columns, encoders))):
        phases.set("input", step // case["grad_accum"] + 1)
        with accelerator.accumulate(unet):
            if vae is None:
                model_input = batch["latents"].to(dtype=weight_dtype)
            elif is_sdxl:
                pixel_values = batch["pixel_values"]
                model_input = vae.encode(pixel_values).latent_dist.sample()
                model_input = model_input * vae.config.scaling_factor
                model_input = model_input.to(weight_dtype)
            else:
                model_input = vae.encode(batch["pixel_values"].to(dtype=weight_dtype)).latent_dist.sample()
                model_input = model_input * vae.config.scaling_factor
            noise = torch.randn_like(model_input)
            bsz = model_input.shape[0]
            timesteps = torch.randint(0, noise_scheduler.config.num_train_timesteps, (bsz,), device=model_input.device)
            timesteps = timesteps.long()
            noisy_model_input = noise_scheduler.add_noise(model_input, noise, timesteps)
            options = {}
            if not encoders.texts:
                prompt_embeds = batch["prompt_embeds"]
            elif not is_sdxl:
                prompt_embeds = encoders.texts[0](batch["input_ids"], return_dict=False)[0]
            if is_sdxl:
                size = case["resolution"]
                add_time_ids = torch.cat(
                    [torch.tensor([[size, size, 0, 0, size, size]]).to(accelerator.device, dtype=weight_dtype) for _ in range(bsz)])
                options = {"time_ids": add_time_ids}
                if encoders.texts:
                    prompt_embeds, pooled_prompt_embeds = encoders.encode_sdxl([batch["input_ids_one"], batch["input_ids_two"]])
                options["text_embeds"] = pooled_prompt_embeds if encoders.texts else batch["pooled_prompt_embeds"]
                options = {"added_cond_kwargs": options}
            phases.set("forward")
            model_pred = unet(noisy_model_input, timesteps, prompt_embeds, return_dict=False, **options)[0]
            phases.set("loss")
            target = noise
            loss = F.mse_loss(model_pred.float(), target.float(), reduction="mean")
            avg_loss = accelerator.gather(loss.repeat(case["batch"])).mean()
            avg_loss.item()
            finish(case, phases, run, loss)


LOOPS = {"FluxTransformer2DModel": train_flux, "SD3Transformer2DModel": train_sd3, "UNet2DConditionModel": train_unet}


def run_diffusion(case, phases, stub):
    import torch
    if stub:
        # Whether a gradient overflowed is a number, of which the phantom has none: every step happens.
        torch.amp.GradScaler._maybe_opt_step = lambda _self, optimizer, _state, *arguments, **options: optimizer.step(*arguments, **options)
    from accelerate import Accelerator
    from diffusers.optimization import get_scheduler
    accelerator = Accelerator(mixed_precision=MIXED[case["precision"]], gradient_accumulation_steps=case["grad_accum"])
    phases.set("load", 0)
    encoders = diffusion_encoders.Encoders(case, frozen_dtype(case))
    model = load(case, encoders)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    info = dict(zip(("param_count", "trainable_params"), harness.count(model)), after_load_bytes=torch.cuda.memory_allocated())
    phases.mark(list(model.parameters()), "parameter")
    optimizer = optimizer_of(case, parameters)
    lr_scheduler = get_scheduler("constant", optimizer=optimizer)
    model, optimizer, lr_scheduler = accelerator.prepare(model, optimizer, lr_scheduler)
    model.train()
    LOOPS[case["model"]["_class_name"]](case, phases, (model, optimizer, lr_scheduler, accelerator), encoders, case["resolution"] // 8)
    phases.close()
    if phases.traced and os.environ.get("DIFFUSION_TIMELINES"):
        import measure_agi2
        measure_agi2.TIMELINES = os.environ["DIFFUSION_TIMELINES"]
        measure_agi2.write_timeline(case)
    return info


def warm(_cases):
    """What the children share; diffusers asks for the accelerator as it is imported, and a process that has asked must not fork."""
    import accelerate, peft, torch  # noqa
    asked = torch.accelerator.is_available, torch.accelerator.current_accelerator
    torch.accelerator.is_available, torch.accelerator.current_accelerator = lambda: True, lambda *_: torch.device("cuda")
    import diffusers.optimization
    from diffusers import AutoencoderKL, FluxPipeline  # noqa
    from transformers import CLIPTextModelWithProjection, T5EncoderModel  # noqa
    torch.accelerator.is_available, torch.accelerator.current_accelerator = asked


harness.RUN["diffusion"] = run_diffusion

if __name__ == "__main__":
    if "--timelines" in sys.argv:
        at = sys.argv.index("--timelines")
        os.environ["DIFFUSION_TIMELINES"] = os.path.abspath(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    harness.main(full_case, lambda case: run_diffusion, warm, ("diffusers", "peft", "accelerate", "bitsandbytes"))
