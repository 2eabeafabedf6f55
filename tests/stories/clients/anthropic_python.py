"""The anthropic SDK, which is on httpx2; it reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY itself."""

import json

import anthropic

tools: list[anthropic.types.ToolParam] = [
    {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
]
with (
    anthropic.Anthropic() as client,
    client.messages.stream(
        model="scripted-1",
        max_tokens=256,
        tools=tools,
        messages=[{"role": "user", "content": "How is the weather in Oslo?"}],
    ) as stream,
):
    message = stream.get_final_message()
text, call = message.content
assert text.type == "text"
assert call.type == "tool_use"
print(json.dumps({"text": text.text, "tool": call.name, "input": call.input}))
