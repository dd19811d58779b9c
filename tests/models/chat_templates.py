"""Chat templates in the forms of published families, written for the tests."""

# ruff: noqa: E501 (a line break would be part of some templates)

TEMPLATES = {
    "Llama 3": r"""
{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") if strftime_now is defined else "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Today: " + date_string + "\n\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
""",
    "Qwen2.5": r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}
    {{- '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls or [] %}{{- tool_call.name }}{%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""",
    "Qwen3": r"""
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role in ["user", "system"] %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- else %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' + content.strip('\n') + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
""",
    "Mistral": r"""
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages if message.role != "tool" %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("Roles must alternate user/assistant/user/assistant/...") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
""",
    "Gemma": r"""{{ bos_token }}
{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate') }}
{% endif %}
{% if message['role'] == 'assistant' %}
{% set role = 'model' %}
{% else %}
{% set role = message['role'] %}
{% endif %}
{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{'<start_of_turn>model\n'}}
{% endif %}
""",
    "Phi-3": r"""{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}
{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}
{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}
{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}
""",
    "SmolLM3": r"""
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set reasoning_mode = "/think" if enable_thinking else "/no_think" -%}
{%- if messages[0].role == "system" -%}
    {%- set system_message = messages[0].content.replace("/system_override", "").rstrip() -%}
    {%- if "/no_think" in system_message -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
{%- endif -%}
{{- "<|im_start|>system\n## Metadata\nToday: " + strftime_now("%d %B %Y") + "\n" -}}
{{- "Reasoning Mode: " + reasoning_mode + "\n" -}}
{{- (system_message or "") + "<|im_end|>\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\n" + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if reasoning_mode == "/think" -%}
            {{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\n<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- endif -%}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\n" if reasoning_mode == "/think" else "<|im_start|>assistant\n<think>\n\n</think>\n" }}
{%- endif -%}
""",
    "Granite": r"""
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message, messages = messages[0]['content'], messages[1:] %}
{%- else %}
    {%- set system_message = "Knowledge cutoff: April 2024." %}
    {%- if tools and documents %}{%- set system_message = system_message + " Tools." %}
    {%- elif thinking %}{%- set system_message = system_message + " Think first." %}
    {%- endif %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\n' }}
{%- if documents %}
    {{- documents | tojson(indent=4) }}
{%- endif %}
{%- for message in messages %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|start_of_role|>assistant' }}
        {%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}
        {{- '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}
""",
    "Command-R": r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}
{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'You are Command.' %}
{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}
{% if system_message != false %}
{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}
{% for message in loop_messages %}{% set content = message['content'] %}
{% if message['role'] == 'user' %}
{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}
{% elif message['role'] == 'assistant' %}
{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}
{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}
""",
    "gpt-oss": r"""
{%- macro render_tools(namespace_name, tools) -%}
    {{- "namespace " + namespace_name + " {" }}
    {%- for tool in tools %}{{- tool.name }}{%- if not loop.last %}{{- ", " }}{%- endif %}{%- endfor %}
    {{- "}" }}
{%- endmacro -%}
{%- macro system_message() -%}
    {%- if model_identity is not defined %}{%- set model_identity = "You are a model." %}{%- endif %}
    {{- model_identity + "\nCurrent date: " + strftime_now("%Y-%m-%d") + "\n\n" }}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Reasoning: " + reasoning_effort + "\n\n# Valid channels: analysis, final." }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- system_message() }}{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if developer or tools %}
    {{- "<|start|>developer<|message|># Instructions\n\n" + developer }}
    {%- if tools -%}{{- render_tools("functions", tools) }}{%- endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}{{- message.thinking }}{%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
""",
    "GLM-4": r"""[gMASK]<sop>
{%- macro visible_text(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}{{- item.text }}
            {%- elif item is string -%}{{- item }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{{ visible_text(m.content).strip() }}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible_text(m.content) }}
{%- else -%}{%- continue -%}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}
""",
    "Seed-OSS": r"""{# tokens of the family #}
{%- set bos_token = "<seed:bos>" %}{%- set eos_token = "<seed:eos>" %}
{%- set budget_reflections_v05 = {0: 0, 512: 128, 1024: 256, 2048: 512} %}
{%- set ns = namespace(interval = None) %}
{%- if thinking_budget is defined and thinking_budget is not none %}
    {%- for k, v in budget_reflections_v05 | dictsort %}
        {%- if ns.interval is none and thinking_budget <= k %}{%- set ns.interval = v %}{%- endif %}
        {%- if ns.interval is not none %}{%- break %}{%- endif %}
    {%- endfor %}
    {%- if ns.interval is none %}{%- set ns.interval = budget_reflections_v05[2048] %}{%- endif %}
{%- endif %}
{%- if messages[0]["role"] == "system" %}
{{ bos_token + "system\n" + messages[0]["content"] + eos_token }}
{%- endif %}
{%- if thinking_budget is defined and thinking_budget == 0 %}
{{ bos_token + "system" }}
{{ "You answer at once." }}
{{ eos_token }}
{%- elif ns.interval %}
{{ bos_token + "system" }}
{{ "Reflect every " ~ ns.interval ~ " tokens of " ~ thinking_budget ~ "." }}
{{ eos_token }}
{%- endif %}
{%- for message in messages if message.role != "system" %}
{{ bos_token + message.role }}
{{ message.content | trim }}
{{ eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
{{ bos_token + "assistant" }}
{%- if thinking_budget == 0 %}
{{ "<seed:think><seed:cot_budget_reflect>0</seed:cot_budget_reflect></seed:think>" }}
{%- endif %}
{%- endif %}
""",
    "all that templates may use": r"""
{%- set d = dict(a=1, b=[1.5, none, true], c="<é>") -%}
{{ d | tojson }} {{ d | tojson(indent=2, sort_keys=true) }} {{ d | tojson(ensure_ascii=true) }}
{{ dict.fromkeys(["x"], 2) | tojson(separators=(",", ":")) }} {{ tools is none }} {{ documents }}
{%- for n in range(9) %}{% if n == 2 %}{% continue %}{% elif n == 5 %}{% break %}{% endif %}{{ n }}{% endfor %}
{% set ns = namespace(self=3, n=1) %}{% set ns.n = ns.n + ns.self %}{{ ns.n }}
{%- for m in messages %}{% generation %}{% set seen = m.role %}{{ seen }}{% endgeneration %}{{ seen }}
{%- endfor %}
  {# nothing #}
{{ undefined_name }} {{ messages[0].missing }} {{ "%5.2f" | format(2) }} {{ eos_token }}
""",
}
