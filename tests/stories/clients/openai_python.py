"""The openai SDK, as in its manual; it reads OPENAI_BASE_URL and OPENAI_API_KEY itself."""

import openai

with openai.OpenAI() as client:
    stream = client.chat.completions.create(
        model="scripted-1", messages=[{"role": "user", "content": "How is the weather in Oslo?"}], stream=True
    )
    print("".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices))
