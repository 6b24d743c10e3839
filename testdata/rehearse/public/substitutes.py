"""Small data, vocabularies and weights in the place of those that scripts download. All are made up, of the real shapes.

A maker writes one file or folder, once; `made(folder, name)` gives its path. `NAME:ARGUMENT` calls a maker with an argument.
"""

import gzip
import hashlib
import json
import math
import pathlib
import pickle
import random
import string
import struct

WORDS = [f"{a}{b}{c}" for a in "bdklmnprst" for b in "aeiou" for c in ("", "n", "s", "r", "nd")]


def text(words, seed=0):
    """Sentences of made-up words."""
    choose = random.Random(seed).choice
    return " ".join(choose(WORDS) + ("." if at % 12 == 11 else "") for at in range(words)) + "\n"


def lines(count, words=20):
    return "".join(text(words, at) for at in range(count))


def numbers(count, below, seed=0):
    import numpy

    return numpy.random.default_rng(seed).integers(0, below, count, dtype=numpy.uint8)


def mnist(place):
    """The four files of MNIST and of Fashion-MNIST."""
    place.mkdir()
    for split, count in ("train", 60000), ("t10k", 10000):
        (place / f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, count, 28, 28) + numbers(count * 784, 256).tobytes())
        (place / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, count) + numbers(count, 10).tobytes())


def keras(place):
    """The folder KERAS_HOME with its file of MNIST."""
    import numpy

    (place / "datasets").mkdir(parents=True)
    arrays = {}
    for split, count in ("train", 60000), ("test", 10000):
        arrays |= {f"x_{split}": numbers(count * 784, 256).reshape(count, 28, 28), f"y_{split}": numbers(count, 10)}
    numpy.savez(place / "datasets" / "mnist.npz", **arrays)


def cifar(place, classes="10"):
    """The folder that is in CIFAR's archive, a tenth of its rows; CLASSESxTIMES as many times more."""
    place.mkdir()
    classes, _, times = classes.partition("x")
    ten, times = classes == "10", int(times or 1)
    batches = [(f"data_batch_{at}", 1000) for at in range(1, 6)] + [("test_batch", 1000)] if ten else [("train", 5000), ("test", 1000)]
    for name, count in [(name, count * times) for name, count in batches]:
        labels = numbers(count, int(classes)).tolist()
        kinds = {"labels": labels} if ten else {"fine_labels": labels, "coarse_labels": labels}
        (place / name).write_bytes(pickle.dumps({"data": numbers(count * 3072, 256).reshape(count, 3072), **kinds}))
    names = [f"class{at}" for at in range(int(classes))]
    (place / ("batches.meta" if ten else "meta")).write_bytes(pickle.dumps({"label_names" if ten else "fine_label_names": names}))


def images(place, sizes="256x16", classes=("cat", "dog")):
    """train, val and test with a folder for each class; SIZExCOUNT images in each."""
    from PIL import Image

    size, count = map(int, sizes.split("x"))
    for split in "train", "val", "test":
        for kind in classes:
            (place / split / kind).mkdir(parents=True)
            for at in range(count):
                Image.fromarray(numbers(size * size * 3, 256, at).reshape(size, size, 3)).save(place / split / kind / f"{kind}{at:04}.jpg")


def flat(place, sizes="256x64"):
    """One folder of images."""
    from PIL import Image

    size, count = map(int, sizes.split("x"))
    place.mkdir()
    for at in range(count):
        Image.fromarray(numbers(size * size * 3, 256, at).reshape(size, size, 3)).save(place / f"{at:06}.jpg")


def masks(place, sizes="256x64"):
    """One folder of pictures of two grey values, as big as `flat`'s."""
    from PIL import Image

    size, count = map(int, sizes.split("x"))
    place.mkdir()
    for at in range(count):
        Image.fromarray(numbers(size * size, 2, at).reshape(size, size) * 255).save(place / f"{at:06}.png")


def pets(place):
    """One folder of pictures that are named by what they show."""
    from PIL import Image

    place.mkdir()
    for at in range(128):
        Image.fromarray(numbers(3 * 256**2, 256, at).reshape(256, 256, 3)).save(place / f"{'cat dog cow hen'.split()[at % 4]}_{at}.jpg")


def coco(place):
    """Pictures of several sizes with boxes and outlines, as COCO's detection set of 2017."""
    from PIL import Image

    (place / "annotations").mkdir(parents=True)
    draw = random.Random(0)
    for split, count in ("train2017", 24), ("val2017", 8):
        (place / split).mkdir()
        images, boxes = [], []
        for at in range(1, count + 1):
            width, height = draw.choice([(640, 480), (480, 640), (512, 384)])
            images.append({"id": at, "file_name": f"{at:012}.jpg", "width": width, "height": height})
            Image.fromarray(numbers(width * height * 3, 256, at).reshape(height, width, 3)).save(place / split / f"{at:012}.jpg")
            for _ in range(draw.randrange(1, 8)):
                x, y, w, h = draw.randrange(200), draw.randrange(200), draw.randrange(20, 200), draw.randrange(20, 160)
                outline = [[x, y, x + w, y, x + w, y + h, x, y + h]]
                kind = draw.randrange(1, 81)
                boxes.append({"id": len(boxes) + 1, "image_id": at, "category_id": kind, "bbox": [x, y, w, h], "area": w * h, "iscrowd": 0, "segmentation": outline})
        kinds = [{"id": at, "name": f"kind{at}"} for at in range(1, 91)]
        content = {"info": {}, "licenses": [], "images": images, "annotations": boxes, "categories": kinds}
        (place / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))


def boxes(place):
    """Pictures with a file of boxes each, as YOLO's data sets: kind, centre and size as parts of the picture's."""
    from PIL import Image

    draw = random.Random(0)
    for split, count in ("train", 24), ("val", 8):
        for kind in "images", "labels":
            (place / kind / split).mkdir(parents=True)
        for at in range(count):
            Image.fromarray(numbers(640 * 480 * 3, 256, at).reshape(480, 640, 3)).save(place / "images" / split / f"{at:06}.jpg")
            rows = (f"{draw.randrange(80)} {draw.uniform(0.3, 0.7):.4f} {draw.uniform(0.3, 0.7):.4f} {draw.uniform(0.1, 0.5):.4f} 0.3" for _ in range(draw.randrange(1, 8)))
            (place / "labels" / split / f"{at:06}.txt").write_text("\n".join(rows) + "\n")
    names = "".join(f"  {at}: kind{at}\n" for at in range(80))
    (place / "set.yaml").write_text(f"path: {place.resolve()}\ntrain: images/train\nval: images/val\nnames:\n{names}")


def enwik8(place):
    """A hundred million bytes of text, gzipped."""
    page = text(200_000).encode()
    with gzip.open(place, "wb", compresslevel=1) as file:
        file.write((page * (100_000_000 // len(page) + 1))[:100_000_000])


def prose(place):
    """A million letters, and every other that can be printed."""
    place.write_text(string.printable + lines(10_000))


def corpus(place, ending="txt"):
    """train, valid and test as Penn Treebank and WikiText have them."""
    place.mkdir()
    for split, count in ("train", 5000), ("valid", 500), ("test", 500):
        (place / f"{split}.{ending}").write_text(lines(count))


def names(place):
    """Names, one a line."""
    place.write_text("\n".join(sorted({a + b for a in WORDS for b in WORDS[::7]})) + "\n")


def cora(place):
    """The citation graph: 2708 papers of 1433 words and 5429 links."""
    place.mkdir()
    draw = random.Random(0)
    kinds = ["Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods", "Reinforcement_Learning", "Rule_Learning", "Theory"]
    rows = ("\t".join([str(at), *("1" if draw.random() < 0.013 else "0" for _ in range(1433)), kinds[at % 7]]) for at in range(2708))
    (place / "cora.content").write_text("\n".join(rows) + "\n")
    (place / "cora.cites").write_text("".join(f"{draw.randrange(2708)}\t{draw.randrange(2708)}\n" for _ in range(5429)))


def planetoid(place):
    """The same graph as the eight files of Planetoid's set: 140 papers to train on, 1000 to test, sparse words, kinds one-hot."""
    import numpy
    import scipy.sparse

    place.mkdir()
    draw = random.Random(0)
    words = scipy.sparse.random(2708, 1433, 0.013, "csr", "float32", random_state=0)
    kinds = numpy.eye(7, dtype=numpy.int32)[numpy.arange(2708) % 7]
    parts = {"x": words[:140], "tx": words[1708:], "allx": words[:1708], "y": kinds[:140], "ty": kinds[1708:], "ally": kinds[:1708]}
    parts["graph"] = {at: [draw.randrange(2708) for _ in range(2)] for at in range(2708)}
    for name, part in parts.items():
        (place / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (place / "ind.cora.test.index").write_text("".join(f"{at}\n" for at in range(1708, 2708)))


def byte_letters():
    """GPT-2's printable letter of every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    for at, byte in enumerate(byte for byte in range(256) if byte not in letters):
        letters[byte] = chr(256 + at)
    return [letters[byte] for byte in printable + [byte for byte in range(256) if byte not in printable]]


def tiktoken(place):
    """The cache folder of tiktoken with a vocabulary of GPT-2's size: all bytes and 50,000 pairs of them."""
    place.mkdir()
    letters = byte_letters()
    pairs = [(a, b) for a in letters for b in letters][:50_000]
    merges = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in pairs)
    vocabulary = {token: at for at, token in enumerate([*letters, *(a + b for a, b in pairs)])} | {"<|endoftext|>": 50256}
    where = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
    for name, content in ("vocab.bpe", merges), ("encoder.json", json.dumps(vocabulary)):
        (place / hashlib.sha1((where + name).encode()).hexdigest()).write_text(content)


def hub(place, models="resnet18"):
    """The folder TORCH_HOME with random weights of torchvision's models."""
    import torch
    import torchvision

    (place / "hub" / "checkpoints").mkdir(parents=True)
    for model in models.split(","):
        weights = torchvision.models.get_model_weights(model)
        state = torchvision.models.get_model(model, weights=None).state_dict()
        for each in weights:
            torch.save(state, place / "hub" / "checkpoints" / each.url.rsplit("/", 1)[1])


def unet(place):
    """The configuration of a small UNet2DModel of diffusers."""
    place.mkdir()
    kinds = ["DownBlock2D", "AttnDownBlock2D", "DownBlock2D"], ["UpBlock2D", "AttnUpBlock2D", "UpBlock2D"]
    sizes = dict(sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=[32, 64, 64], norm_num_groups=8)
    config = dict(_class_name="UNet2DModel", down_block_types=kinds[0], up_block_types=kinds[1], **sizes)
    (place / "config.json").write_text(json.dumps(config))


def bins(place, kinds="256"):
    """train.bin and val.bin of nanoGPT with the vocabulary's size."""
    import numpy

    place.mkdir()
    for split, count in ("train", 400_000), ("val", 100_000):
        numpy.random.default_rng(0).integers(0, int(kinds), count, dtype=numpy.uint16).tofile(place / f"{split}.bin")


def shards(place):
    """A folder of numpy's files of GPT-2's tokens, as FineWeb is cut up."""
    import numpy

    place.mkdir()
    for at, split in enumerate(("train", "val")):
        numpy.save(place / f"edufineweb_{split}_{at:06}.npy", numpy.random.default_rng(at).integers(0, 50257, 400_000, dtype=numpy.uint16))


def shard(place):
    """One file of GPT-2's tokens behind a head of 256 numbers, as llm.c reads it."""
    import numpy

    count = 100_000
    head = numpy.zeros(256, dtype=numpy.int32)
    head[:3] = 20240520, 1, count
    place.write_bytes(head.tobytes() + numpy.random.default_rng(0).integers(0, 50257, count, dtype=numpy.uint16).tobytes())


def blender(place):
    """Pictures with a transparent ground and where each was taken from, as NeRF's synthetic scenes."""
    import numpy
    from PIL import Image

    for split in "train", "val", "test":
        (place / split).mkdir(parents=True)
        frames = []
        for at in range(9):
            angle = at * 0.7
            turned = [[math.cos(angle), 0, math.sin(angle), 4 * math.sin(angle)], [0, 1, 0, 0], [-math.sin(angle), 0, math.cos(angle), 4 * math.cos(angle)], [0, 0, 0, 1]]
            frames.append({"file_path": f"./{split}/r_{at}", "rotation": 0.01, "transform_matrix": turned})
            picture = numpy.tile(numbers(80 * 80 * 4, 256, at).reshape(80, 80, 4), (10, 10, 1))
            Image.fromarray(picture).save(place / split / f"r_{at}.png")
        (place / f"transforms_{split}.json").write_text(json.dumps({"camera_angle_x": 0.69, "frames": frames}))


def tokenizer():
    """Of bytes and common pairs, with the special tokens of GPT-2, BERT and T5."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "[CLS]", "[SEP]"]
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([lines(500)], trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>", mask_token="<mask>",
        cls_token="[CLS]", sep_token="[SEP]", model_max_length=512,
    )  # fmt: skip
    wrapped.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    return wrapped


#: Architecture -> the class to make it with and what its configuration sets; the sizes are small, the structure is the real one.
MODELS = {
    "gpt2": ("AutoModelForCausalLM", dict(n_embd=256, n_layer=4, n_head=4)),
    "qwen2": ("AutoModelForCausalLM", dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2)),
    "qwen2-reward": ("AutoModelForSequenceClassification", dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, num_labels=1)),
    "llama": ("AutoModelForCausalLM", dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4)),
    "opt": ("AutoModelForCausalLM", dict(hidden_size=256, ffn_dim=1024, num_hidden_layers=4, num_attention_heads=4, word_embed_proj_dim=256)),
    "mixtral": ("AutoModelForCausalLM", dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)),
    "bert": ("AutoModelForMaskedLM", dict(hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4)),
    "bert-768": ("AutoModelForMaskedLM", dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=12)),
    "roberta": ("AutoModelForMaskedLM", dict(hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4)),
    "t5": ("AutoModelForSeq2SeqLM", dict(d_model=256, d_ff=1024, num_layers=4, num_heads=4, d_kv=64, decoder_start_token_id=0)),
    "bart": ("AutoModelForSeq2SeqLM", dict(d_model=256, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024)),
    "vit": ("AutoModelForImageClassification", dict(hidden_size=192, intermediate_size=768, num_hidden_layers=6, num_attention_heads=3)),
}  # fmt: skip


def model(place, kind="gpt2"):
    """A model of transformers with random weights, and its tokenizer."""
    import transformers

    maker, sizes = MODELS[kind]
    words = tokenizer()
    special = dict(vocab_size=len(words), pad_token_id=words.pad_token_id, bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id)
    config = transformers.AutoConfig.for_model(kind.split("-")[0], **sizes, **({} if kind == "vit" else special))
    getattr(transformers, maker).from_config(config).save_pretrained(place)
    if kind == "vit":
        transformers.ViTImageProcessor().save_pretrained(place)
    else:
        words.save_pretrained(place)


def rows(place, kind="text"):
    """A folder of JSON lines that `datasets.load_dataset` takes; KIND/CONFIGURATION names a configuration of it, which has more rows."""
    kind, _, configuration = kind.partition("/")
    place.mkdir()
    splits = {"train": 10_000, "validation": 1000, "dev": 1000, "test": 1000} if configuration else {"train": 200, "validation": 40, "test": 40}
    for split, count in splits.items():
        with open(place / f"{split}.jsonl", "w") as file:
            for at in range(count):
                print(json.dumps(ROWS[kind](at)), file=file)
    if configuration:
        files = "".join(f"      - split: {split}\n        path: {split}.jsonl\n" for split in splits)
        (place / "README.md").write_text(f"---\nconfigs:\n  - config_name: {configuration}\n    data_files:\n{files}---\n")


def said(role, at, words=12):
    return [{"role": role, "content": text(words + at % 40, at).strip()}]


#: Kind -> a row of its data.
ROWS = {
    "text": lambda at: {"text": text(60, at).strip()},
    "chat": lambda at: {"messages": said("user", at) + said("assistant", at + 1000)},
    "pairs": lambda at: {"chosen": said("user", at) + said("assistant", at + 1000), "rejected": said("user", at) + said("assistant", at + 2000)},
    "unpaired": lambda at: {"prompt": said("user", at), "completion": said("assistant", at + 1000), "label": at % 2 == 0},
    "prompts": lambda at: {"prompt": said("user", at)},
    "instructions": lambda at: {"instruction": text(12, at).strip(), "input": "", "output": text(40, at + 1).strip()},
    "labelled": lambda at: {"text": text(40, at).strip(), "sentence": text(40, at).strip(), "label": at % 2, "idx": at},
    "mrpc": lambda at: {"sentence1": text(20, at).strip(), "sentence2": text(20, at + 1).strip(), "label": at % 2, "idx": at},
    "similar": lambda at: {"sentence1": text(20, at).strip(), "sentence2": text(20, at + 1).strip(), "score": at % 6 / 5},
    "nli": lambda at: {"premise": text(20, at).strip(), "hypothesis": text(10, at + 1).strip(), "label": at % 3},
    "endings": lambda at: {"ctx": text(20, at).strip(), "label": at % 4, "endings": [text(6 + (at + one) % 12, 4 * at + one).strip() for one in range(4)]},
    "triples": lambda at: {"anchor": text(20, at).strip(), "positive": text(10, at + 1).strip(), "negative": text(10, at + 2).strip()},
}  # fmt: skip


def jsonl(place, kind="text"):
    """One file of JSON lines."""
    place.write_text("".join(json.dumps(ROWS[kind](at)) + "\n" for at in range(200)))


def document(place, kind="instructions"):
    """One file with a list of rows."""
    place.write_text(json.dumps([ROWS[kind](at) for at in range(200)]))


def series(place, columns="7"):
    """A table of hours and measurements, as the electricity transformers' data."""
    import datetime

    head = "date," + ",".join(["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"][: int(columns)])
    start, draw = datetime.datetime(2016, 7, 1), random.Random(0)
    hours = (f"{start + datetime.timedelta(hours=at)}," + ",".join(f"{draw.random():.4f}" for _ in range(int(columns))) for at in range(17420))
    place.write_text(head + "\n" + "\n".join(hours) + "\n")


MAKERS = [mnist, keras, cifar, images, flat, masks, pets, coco, boxes, enwik8, prose, corpus, names, cora, planetoid, tiktoken, hub, unet, bins, shards, shard, blender, model, rows, jsonl, document, series]


def made(folder, wanted):
    """The path of what a maker writes; it is written where it is not there yet."""
    place = pathlib.Path(folder) / wanted.replace(":", "-").replace(",", "-").replace("/", "-")
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        name, _, argument = wanted.partition(":")
        maker = {each.__name__: each for each in MAKERS}[name]
        maker(place, *([argument] if argument else []))
    return place
