"""The VAE and the text encoders of diffusers' published pipelines, for measure_diffusion.py: of the configs that are published with them,
without numbers, moved to the device and called as the examples do.
"""
VAE = dict(
    block_out_channels=[128, 256, 512, 512], down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4,
    layers_per_block=2, norm_num_groups=32, sample_size=1024)
CLIP_L = dict(
    vocab_size=49408, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, hidden_act="quick_gelu",
    projection_dim=768, eos_token_id=2)
CLIP_H = dict(
    vocab_size=49408, hidden_size=1024, intermediate_size=4096, num_hidden_layers=23, num_attention_heads=16, hidden_act="gelu",
    projection_dim=512, eos_token_id=2)
CLIP_G = dict(
    vocab_size=49408, hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20, hidden_act="gelu",
    projection_dim=1280, eos_token_id=2)
T5_XXL = dict(
    vocab_size=32128, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu",
    tie_word_embeddings=False)


def pipeline_of(case):
    """Which script's statements: sd, sdxl, sd3 or flux."""
    name = case["model"]["_class_name"]
    if name == "UNet2DConditionModel":
        return "sdxl" if case["model"].get("addition_embed_type") == "text_time" else "sd"
    return "flux" if name == "FluxTransformer2DModel" else "sd3"


def loading_order(case):
    """As the scripts move them: those of transformers begin with the VAE, and what is trained whole comes when it is prepared."""
    is_flow = pipeline_of(case) in ("sd3", "flux")
    if case["lora"]:
        return ["vae", "denoiser", "texts"] if is_flow else ["denoiser", "vae", "texts"]
    return ["vae", "texts", "denoiser"] if is_flow else ["denoiser", "texts", "vae"]


def latent_channels(case):
    channels = case["model"].get("in_channels", {"flux": 64, "sd3": 16}.get(pipeline_of(case), 4))
    return channels // 4 if pipeline_of(case) == "flux" else channels


def moved(make, dtype):
    import torch
    with torch.device("meta"):
        model = make().to(dtype)
    return model.to_empty(device="cuda").eval().requires_grad_(False)


class Encoders:
    def __init__(self, case, weight_dtype):
        self.case, self.pipeline, self.weight_dtype = case, pipeline_of(case), weight_dtype
        self.vae, self.texts = None, []

    def load(self, part):
        if part == "vae" and not self.case["cache_latents"]:
            self.load_vae()
        if part == "texts" and not self.case["cache_text_embeddings"]:
            self.load_texts()

    def load_vae(self):
        import torch
        from diffusers import AutoencoderKL
        quantizes = self.pipeline in ("sd", "sdxl")
        shift = None if quantizes else 0.1
        dtype = torch.float32 if self.pipeline in ("sdxl", "sd3") else self.weight_dtype
        self.vae = moved(lambda: AutoencoderKL(
            **VAE, latent_channels=latent_channels(self.case), use_quant_conv=quantizes, use_post_quant_conv=quantizes,
            shift_factor=shift), dtype)

    def load_texts(self):
        from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection
        large = CLIPTextModelWithProjection if self.pipeline == "sd3" else CLIPTextModel
        first = CLIP_H if self.pipeline == "sd" and self.case["model"]["cross_attention_dim"] == 1024 else CLIP_L
        self.texts = [moved(lambda: large(CLIPTextConfig(**first)), self.weight_dtype)]
        if self.pipeline in ("sdxl", "sd3"):
            self.texts.append(moved(lambda: CLIPTextModelWithProjection(CLIPTextConfig(**CLIP_G)), self.weight_dtype))
        if self.pipeline in ("flux", "sd3"):
            self.texts.append(self.t5())

    def t5(self):
        import torch
        from transformers import T5Config, T5EncoderModel
        with torch.device("meta"):
            model = T5EncoderModel(T5Config(**T5_XXL)).to(self.weight_dtype)
        # Moved once, as tied weights are.
        model.encoder.embed_tokens = torch.nn.Identity()
        model = model.to_empty(device="cuda").eval().requires_grad_(False)
        model.encoder.embed_tokens = model.shared
        return model

    def columns(self, columns, resolution):
        """What a batch has in place of what was computed before."""
        import torch
        columns = {name: torch.zeros(sizes, dtype=self.weight_dtype) for name, sizes in columns.items()}
        if self.vae is not None:
            columns = {"pixel_values": torch.zeros(3, resolution, resolution), **{k: v for k, v in columns.items() if k != "latents"}}
        if self.texts:
            columns = {name: column for name, column in columns.items() if "prompt" not in name}
            ids = {"sd": ["input_ids"], "sdxl": ["input_ids_one", "input_ids_two"]}.get(self.pipeline, [])
            columns.update({name: torch.zeros(self.case["prompt_len"], dtype=torch.long) for name in ids})
        return columns

    def tokens(self, length):
        import torch
        return torch.zeros((self.case["batch"], length), dtype=torch.long)

    def encode_clip(self, text_encoder, device):
        prompt_embeds = text_encoder(self.tokens(77).to(device), output_hidden_states=True)
        pooled_prompt_embeds = prompt_embeds[0]
        prompt_embeds = prompt_embeds.hidden_states[-2]
        prompt_embeds = prompt_embeds.to(dtype=text_encoder.dtype, device=device)
        _, seq_len, _ = prompt_embeds.shape
        prompt_embeds = prompt_embeds.repeat(1, 1, 1)
        prompt_embeds = prompt_embeds.view(self.case["batch"], seq_len, -1)
        return prompt_embeds, pooled_prompt_embeds

    def encode_pooled(self, text_encoder, device):
        prompt_embeds = text_encoder(self.tokens(77).to(device), output_hidden_states=False)
        prompt_embeds = prompt_embeds.pooler_output
        prompt_embeds = prompt_embeds.to(dtype=text_encoder.dtype, device=device)
        prompt_embeds = prompt_embeds.repeat(1, 1)
        return prompt_embeds.view(self.case["batch"], -1)

    def encode_t5(self, text_encoder, length, device):
        prompt_embeds = text_encoder(self.tokens(length).to(device))[0]
        prompt_embeds = prompt_embeds.to(dtype=text_encoder.dtype, device=device)
        _, seq_len, _ = prompt_embeds.shape
        prompt_embeds = prompt_embeds.repeat(1, 1, 1)
        return prompt_embeds.view(self.case["batch"], seq_len, -1)

    def encode_flux(self, device):
        """`compute_text_embeddings` of the scripts of Flux, with `text_ids`."""
        import torch
        with torch.no_grad():
            pooled_prompt_embeds = self.encode_pooled(self.texts[0], device)
            prompt_embeds = self.encode_t5(self.texts[1], self.case["prompt_len"], device)
            text_ids = torch.zeros(prompt_embeds.shape[1], 3).to(device=device, dtype=self.texts[0].dtype)
        return prompt_embeds, pooled_prompt_embeds, text_ids

    def encode_sd3(self, device):
        """`compute_text_embeddings` of the scripts of SD3."""
        import torch
        with torch.no_grad():
            return self.join_sd3(device)

    def join_sd3(self, device):
        import torch
        clip_prompt_embeds_list, clip_pooled_prompt_embeds_list = [], []
        for text_encoder in self.texts[:2]:
            prompt_embeds, pooled_prompt_embeds = self.encode_clip(text_encoder, device)
            clip_prompt_embeds_list.append(prompt_embeds)
            clip_pooled_prompt_embeds_list.append(pooled_prompt_embeds)
        clip_prompt_embeds = torch.cat(clip_prompt_embeds_list, dim=-1)
        pooled_prompt_embeds = torch.cat(clip_pooled_prompt_embeds_list, dim=-1)
        t5_prompt_embed = self.encode_t5(self.texts[-1], self.case["prompt_len"] - 77, device)
        clip_prompt_embeds = torch.nn.functional.pad(
            clip_prompt_embeds, (0, t5_prompt_embed.shape[-1] - clip_prompt_embeds.shape[-1]))
        prompt_embeds = torch.cat([clip_prompt_embeds, t5_prompt_embed], dim=-2)
        return prompt_embeds, pooled_prompt_embeds

    def encode_sdxl(self, ids):
        """`encode_prompt` of train_text_to_image_lora_sdxl.py."""
        import torch
        prompt_embeds_list = []
        for text_encoder, text_input_ids in zip(self.texts, ids):
            prompt_embeds = text_encoder(text_input_ids.to(text_encoder.device), output_hidden_states=True, return_dict=False)
            pooled_prompt_embeds = prompt_embeds[0]
            prompt_embeds = prompt_embeds[-1][-2]
            bs_embed, seq_len, _ = prompt_embeds.shape
            prompt_embeds = prompt_embeds.view(bs_embed, seq_len, -1)
            prompt_embeds_list.append(prompt_embeds)
        prompt_embeds = torch.concat(prompt_embeds_list, dim=-1)
        pooled_prompt_embeds = pooled_prompt_embeds.view(bs_embed, -1)
        return prompt_embeds, pooled_prompt_embeds
