"""LangChain; it reads OPENAI_API_BASE and OPENAI_API_KEY itself."""

from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="scripted-1")
print("".join(str(chunk.content) for chunk in model.stream("How is the weather in Oslo?")))
