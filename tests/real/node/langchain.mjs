// LangChain for JavaScript: `new ChatOpenAI(...).bindTools(...).stream()`, its chunks added up by LangChain itself.

import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';

import { NAME, retriesOf, run, serve, toolOf } from './lines.mjs';

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

await serve(async (asked, turns, ran) => {
  const { base_url, key, model: name, prompt, tool, usage, timeout } = asked;
  const configuration = { baseURL: base_url };
  const model = new ChatOpenAI({
    model: name, apiKey: key, configuration, timeout: timeout * 1000, streamUsage: usage, ...retriesOf(asked),
  });
  const messages = [new HumanMessage(prompt)];
  let said = await once(tool ? model.bindTools([toolOf(asked)], { tool_choice: NAME }) : model, messages, turns);
  while (said?.tool_calls?.length && turns.length < asked.turns) {
    messages.push(said);
    for (const { id, args } of said.tool_calls) {
      messages.push(new ToolMessage({ content: run(asked, args, ran), tool_call_id: id }));
    }
    said = await once(model.bindTools([toolOf(asked)]), messages, turns);
  }
});
