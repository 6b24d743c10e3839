"""Chat templates of small tokenizers, and what transformers' apply_chat_template makes of conversations by them.

    python testdata/train/chat.py FOLDER

makes a folder a case: tokenizer.json, tokenizer_config.json and chat_template.jinja as save_pretrained writes them, rows.jsonl with
conversations, and expected.json with the tokens of each and which of them the assistant says. The templates are written for this test in
the manner of published ones; none is copied.
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TURNS = """{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set talk = messages[1:] %}
{%- else %}
    {%- set system = 'Be brief.' %}
    {%- set talk = messages %}
{%- endif %}
{{- bos_token }}
{{- '<|head|>system<|mid|>\n\n' + system + '<|end|>' }}
{%- for message in talk %}
    {%- if message.role not in ['user', 'assistant'] %}
        {{- raise_exception('unknown role ' + message.role) }}
    {%- endif %}
    {{- '<|head|>' + message['role'] + '<|mid|>\n\n' }}
    {%- if message.content is string %}{{- message.content | trim }}{% else %}{{- message.content | tojson }}{% endif %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|mid|>\n\n' }}{% endif %}
"""
PAIRS = """{{ bos_token }}{% for message in messages %}
  {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{ raise_exception('roles must alternate') }}
  {% endif %}
  {% if message['role'] == 'user' %}
    {{ '[Q] ' + message['content'].strip() + ' [/Q]' }}
  {%- else %}
    {{ ' ' + message['content'].strip() + eos_token }}
  {%- endif %}
{% endfor %}"""
MARKED = """{%- set state = namespace(turns=0) -%}
{% for message in messages %}
  {%- if message.role == 'assistant' %}
    {%- set state.turns = state.turns + 1 %}
<|head|>model
{% generation %}
{{ message.content }}<|end|>
{% endgeneration %}
  {%- elif message.role == 'tool' %}
    {%- continue %}
  {%- else %}
<|head|>{{ message.role.upper() }}{% for key, value in message.items() if key not in ['role', 'content'] %} {{ key }}={{ value | tojson }}{% endfor %}

{{ message.content.split('#')[-1].lstrip() }}<|end|>
  {%- endif %}
{% endfor %}
{%- if state.turns > 1 %}{{ state.turns }} turns{% endif %}"""
CHATML = """{% for message in messages %}{{'<|head|>' + message['role'] + '\n' + message['content'] + '<|end|>' + '\n'}}{% endfor %}\
{% if add_generation_prompt %}{{ '<|head|>assistant\n' }}{% endif %}"""
TEMPLATES = {"turns": TURNS, "pairs": PAIRS, "marked": MARKED, "chatml": CHATML}
TALKS = [
    [("user", " What is 2 + 2? "), ("assistant", "Four, é 🙂.")],
    [("user", "#a# b"), ("assistant", " x\n"), ("user", "again"), ("assistant", "y  z")],
]
WITH_SYSTEM = [("system", "Answer in words."), ("user", "1"), ("assistant", "one")]


def tokenizer(template):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    made.add_special_tokens({"additional_special_tokens": ["<|head|>", "<|mid|>", "<|end|>"]})
    made.chat_template = template
    return made


def said(made, talk):
    """Tokens, and which the assistant says: by the template's marks, else by what each message adds to those before it."""
    if "generation %}" in made.chat_template:
        whole = made.apply_chat_template(talk, return_dict=True, return_assistant_tokens_mask=True)
        return whole["input_ids"], whole["assistant_masks"]
    ids = made.apply_chat_template(talk, return_dict=True)["input_ids"]
    mask = [0] * len(ids)
    for at, message in enumerate(talk):
        if message["role"] == "assistant":
            before = len(made.apply_chat_template(talk[:at], add_generation_prompt=True, return_dict=True)["input_ids"])
            after = len(made.apply_chat_template(talk[: at + 1], return_dict=True)["input_ids"])
            mask[before:after] = [1] * (after - before)
    return ids, mask


def main():
    for name, template in TEMPLATES.items():
        folder = pathlib.Path(sys.argv[1]) / name
        made = tokenizer(template)
        made.save_pretrained(folder)
        talks = [[{"role": role, "content": content} for role, content in talk] for talk in TALKS]
        if name != "pairs":
            talks.append([{"role": role, "content": content} for role, content in WITH_SYSTEM])
        if name == "turns":
            talks[0][0]["content"] = [{"type": "text", "text": "ü", "b": 1, "a": [True, None, 2.5]}]
        if name == "marked":
            talks[0][0] |= {"tools": {"z": 1, "a": "ß"}}
            talks[1].insert(2, {"role": "tool", "content": "left out"})
        (folder / "rows.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
        expected = [dict(zip(("ids", "said"), said(made, talk))) for talk in talks]
        (folder / "expected.json").write_text(json.dumps(expected))


main()
