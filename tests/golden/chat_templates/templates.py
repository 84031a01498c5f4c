"""Chat templates with the constructs of published models, rendered by Python's jinja2 as the library transformers does
it: sandboxed, with trimmed blocks and loop controls; missing values are none. The day is always 26 July 2024.

  pip install jinja2
  python templates.py > templates.json
"""

import datetime
import json

from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MESSAGE = "What turns\nthe mill?"

TEMPLATES = {
    "turns": "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "a system message of its own": "{%- if messages[0]['role'] == 'system' -%}\n  {%- set system = messages[0]['content'] -%}\n"
    "{%- else -%}\n  {%- set system = 'Be brief.' -%}\n{%- endif -%}\n"
    "{{ bos_token + '[SYS]' + system | trim + '[/SYS]' }}\n{%- for message in messages %}\n"
    "    {%- if message.role == 'user' %}\n        {{- '[USER]' + message.content + '[/USER]' }}\n    {%- endif %}\n{%- endfor %}\n",
    "turns that must alternate": "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'].strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}",
    "blocks on lines of their own": "{% for message in messages %}\n    {% if message.role == 'user' %}\nUser: {{ message.content }}\n"
    "    {% else %}\nOther\n    {% endif %}\n{% endfor %}\nAnswer:\n",
    "tools that are none": "{%- if not tools is defined %}{% set tools = none %}{% endif %}"
    "{%- if tools is not none and tools | length > 0 %}{{ tools | tojson }}{% endif %}"
    "{%- if documents %}documents{% endif %}{{ messages[-1]['content'] }}",
    "tools that might be iterated over": "{% if tools is iterable and tools | length > 0 %}tools{% endif %}{% if messages is iterable %}"
    "{{ messages | length }}{% endif %}{{ messages[0].content is iterable and messages[0].content is not mapping }}",
    "a mapping of its own": "{% set names = {'user': 'Human', 'assistant': 'AI', 'a': none} %}{{ names[messages[0].role] }}"
    "{% for key, value in names.items() %}{{ key }}:{{ value }} {% endfor %}{{ add_generation_prompt }}",
    "today, where it must be known": "{{ strftime_now('%Y-%m-%d') }}, {{ strftime_now('%d %b %Y') }}, {{ strftime_now('%A %d %B %y %H:%M:%S') }}, "
    "{{ strftime_now('%a %-d %j %I %p %e %m') }}",
    "a date that nobody gives": "{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = strftime_now('%d') %}"
    "{%- else %}{%- set date_string = '1 Jan 2020' %}{%- endif %}{%- endif %}{{ date_string }}: {{ messages[0].content }}",
    "thinking that is switched off": "{{ messages[0].content }}{%- if add_generation_prompt %}{{ '<assistant>\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}",
    "the last query, by a namespace": "{%- set ns = namespace(found=false, last=messages | length - 1) %}{%- for message in messages[::-1] %}"
    "{%- set index = (messages | length - 1) - loop.index0 %}{%- if not ns.found and message.role == 'user' and message.content is string "
    "and not (message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}"
    "{%- set ns.found = true %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}{{ messages[ns.last].content }}",
    "macros and loops that go on": "{% macro turn(role, text='') -%}\n<{{ role | upper }}>{{ text }}\n{%- endmacro %}"
    "{% for n in range(4) %}{% if n == 1 %}{% continue %}{% endif %}{% if n == 3 %}{% break %}{% endif %}{{ n }}{% endfor %}"
    "{{ turn(messages[0].role, messages[0].content) }}",
    "methods of texts": "{{ messages[0].content.split('\\n')[0].lower().replace('what', 'which') | title }}"
    "{{ messages[0].content.split('\\n')[-1].lstrip('t').rstrip('?') }}{% if ' x '.strip() in 'axb' %}in{% endif %}",
    "contents that may be parts": "{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}"
    "{% elif message['content'] is iterable %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endif %}{% endfor %}{{ '<model>' if add_generation_prompt else '' }}",
    "keys of a mapping": "{% for message in messages %}{% for key, value in message.items() %}{{ key }}={{ value }};{% endfor %}"
    "{{ message.get('name', 'nobody') }}{{ message.keys() | list | join(',') }}{% endfor %}",
    "comments, raw text and filters": "{# nothing #}{% raw %}{{ raw }}{% endraw %}{{ messages | map(attribute='role') | join(' ') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ none | default('d', true) }}{{ 7 // 2 }}{{ 'a' ~ 1 }}",
    "quotes and signs": "{{ \"<'&\\\"\" }}{{ messages[0].content }}",
    "parts that training marks": "{% for message in messages %}{%- generation -%} {{ message.content }} {%- endgeneration %} {% endfor %}"
    "{% generation %}\n{{ 1 }}{% endgeneration %}\n2",
    "a refusal": "{{ raise_exception('only with a system message') }}",
    "no Jinja": "{% if messages %}",
}


class Generation(Extension):
    """The tag that marks what a model answers, for training; it writes its content."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def refuse(message):
    raise TemplateError(message)


def render(template):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = datetime.datetime(2024, 7, 26).strftime
    return environment.from_string(template).render(
        messages=[{"role": "user", "content": MESSAGE}],
        add_generation_prompt=True,
        enable_thinking=False,
        tools=None,
        documents=None,
        bos_token="<s>",
        eos_token="</s>",
    )


def main():
    cases = []
    for name, template in TEMPLATES.items():
        try:
            rendered = render(template)
        except TemplateError:
            rendered = None
        cases.append({"name": name, "template": template, "rendered": rendered})
    print(json.dumps({"message": MESSAGE, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
