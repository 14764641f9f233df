"""Chat templates: rendered as transformers does, refused in the open, shut in a sandbox."""

import json
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from foredraft.chat_template import ChatTemplate, read_chat_template
from foredraft.errors import InvalidRequest, WeightsError

TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}",
    "blocks": """{{ bos_token }}
{%- for message in messages %}
    {%- if loop.index0 == 0 and message.role == 'system' %}
        {{- message.content | trim }}
        {%- continue %}
    {%- endif %}
[{{ message | tojson }}]
{% endfor %}
{% if add_generation_prompt %}answer: {% endif %}""",
}
TALK = [
    {"role": "system", "content": " be brief "},
    {"role": "user", "content": "<b>äöü</b> & 'x'"},
]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_renders_as_transformers(name, prompt):
    template = ChatTemplate(TEMPLATES[name], {"bos_token": "<s>"})
    rendered: Any = render_jinja_template(
        conversations=[TALK],
        chat_template=TEMPLATES[name],
        add_generation_prompt=prompt,
        bos_token="<s>",
    )
    expected = rendered[0][0]
    assert template.render(TALK, add_generation_prompt=prompt) == expected


def test_what_the_template_refuses_is_named():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(InvalidRequest, match="roles must alternate") as raised:
        template.render(TALK)
    assert raised.value.param == "messages"


@pytest.mark.parametrize(
    "source", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ undefined.x }}"]
)
def test_the_sandbox_is_shut(source):
    with pytest.raises(InvalidRequest, match="chat template"):
        ChatTemplate(source, {}).render(TALK)


@pytest.mark.parametrize(
    ("config", "file", "found"),
    [
        ({"chat_template": "a"}, None, "a"),
        (
            {
                "chat_template": [
                    {"name": "rag", "template": "r"},
                    {"name": "default", "template": "d"},
                ]
            },
            None,
            "d",
        ),
        ({"chat_template": "a"}, "b", "b"),
        ({}, None, None),
    ],
)
def test_where_a_template_lies(tmp_path, config, file, found):
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(config | {"eos_token": {"content": "</s>"}, "pad_token": None})
    )
    if file:
        (tmp_path / "chat_template.jinja").write_text(file)
    template = read_chat_template(tmp_path)
    assert (template and template.source) == found
    if template:
        assert template.specials == {"eos_token": "</s>"}


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(WeightsError, match="tokenizer_config"):
        read_chat_template(tmp_path)
