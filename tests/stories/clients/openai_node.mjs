// The openai SDK for Node; it reads OPENAI_BASE_URL and OPENAI_API_KEY itself.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// Installed elsewhere; a project of yours says `import OpenAI from "openai"`.
const installed = createRequire(`${process.env.STORIES_NODE_MODULES}/`).resolve("openai");
const { default: OpenAI } = await import(pathToFileURL(installed));

const stream = await new OpenAI().chat.completions.create({
  model: "scripted-1",
  messages: [{ role: "user", content: "How is the weather in Oslo?" }],
  stream: true,
});
let said = "";
for await (const chunk of stream) said += chunk.choices[0]?.delta?.content ?? "";
console.log(said);
