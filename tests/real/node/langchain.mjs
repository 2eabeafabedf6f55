// LangChain for JavaScript: `new ChatOpenAI(...).bindTools(...).stream()`, its chunks added up by LangChain itself.

import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';

import { NAME, TOOL, resultOf, serve } from './lines.mjs';

async function once(model, messages, turns) {
  let whole;
  try {
    for await (const chunk of await model.stream(messages)) {
      whole = whole ? whole.concat(chunk) : chunk;
    }
  } finally {
    if (whole) {
      const counts = whole.usage_metadata;
      turns.push({
        text: whole.content,
        calls: (whole.tool_calls ?? []).map(({ id, name, args }) => [id, name, JSON.stringify(args)]),
        finish: whole.response_metadata.finish_reason ?? '',
        usage: counts ? [counts.input_tokens, counts.output_tokens] : null,
      });
    }
  }
  return whole;
}

await serve(async ({ base_url, key, model: name, prompt, tool, usage, retries }, turns, ran) => {
  const configuration = { baseURL: base_url };
  const model = new ChatOpenAI({
    model: name, apiKey: key, configuration, maxRetries: retries, timeout: 30_000, streamUsage: usage,
  });
  const messages = [new HumanMessage(prompt)];
  const said = await once(tool ? model.bindTools([TOOL], { tool_choice: NAME }) : model, messages, turns);
  if (!said?.tool_calls?.length) return;
  messages.push(said);
  for (const { id, args } of said.tool_calls) {
    ran.push(JSON.stringify(args));
    messages.push(new ToolMessage({ content: resultOf(args), tool_call_id: id }));
  }
  await once(model.bindTools([TOOL]), messages, turns);
});
