// The openai SDK for Node: mode `loop` adds up what the iterator gives, mode `helper` is `.stream().finalChatCompletion()`.

import OpenAI from 'openai';

import { NAME, retriesOf, run, serve, toolOf } from './lines.mjs';

const counts = (usage) => (usage ? [usage.prompt_tokens, usage.completion_tokens] : null);

// Everything is appended, as in every tutorial, so an id or a name sent twice shows.
async function loop(client, options, turns) {
  const now = { text: '', calls: [], finish: '', usage: null };
  turns.push(now);
  for await (const chunk of await client.chat.completions.create({ ...options, stream: true })) {
    now.usage = counts(chunk.usage) ?? now.usage;
    for (const { delta, finish_reason } of chunk.choices) {
      now.text += delta.content ?? '';
      now.finish += finish_reason ?? '';
      for (const { index, id, function: said } of delta.tool_calls ?? []) {
        const call = (now.calls[index] ??= ['', '', '']);
        call[0] += id ?? '';
        call[1] += said?.name ?? '';
        call[2] += said?.arguments ?? '';
      }
    }
  }
}

async function helper(client, options, turns) {
  const final = await client.chat.completions.stream(options).finalChatCompletion();
  const [{ message, finish_reason }] = final.choices;
  const calls = (message.tool_calls ?? []).map(({ id, function: said }) => [id, said.name, said.arguments]);
  turns.push({ text: message.content ?? '', calls, finish: finish_reason, usage: counts(final.usage) });
}

await serve(async (asked, turns, ran) => {
  const { base_url, key, model, prompt, tool, usage, mode, timeout } = asked;
  const client = new OpenAI({
    apiKey: key, baseURL: base_url, timeout: timeout * 1000, logLevel: 'off', ...retriesOf(asked),
  });
  const once = mode === 'loop' ? loop : helper;
  const messages = [{ role: 'user', content: prompt }];
  const options = { model, messages };
  if (tool) options.tools = [toolOf(asked)];
  if (usage) options.stream_options = { include_usage: true };
  await once(client, tool ? { ...options, tool_choice: { type: 'function', function: { name: NAME } } } : options, turns);
  while (tool && turns.at(-1).calls.length && turns.length < asked.turns) {
    const { text, calls } = turns.at(-1);
    const called = calls.map(([id, name, given]) => ({ id, type: 'function', function: { name, arguments: given } }));
    messages.push({ role: 'assistant', content: text, tool_calls: called });
    for (const [id, , given] of calls) {
      let content = 'arguments are not JSON';
      try {
        content = run(asked, JSON.parse(given || '{}'), ran); // no arguments are none, as in most loops that people write
      } catch {
        // then the tool does not run
      }
      messages.push({ role: 'tool', tool_call_id: id, content });
    }
    await once(client, options, turns);
  }
});
