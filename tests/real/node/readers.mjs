// What the user of a client holds after a stream that is read out of memory: `node readers.mjs READER`, one JSON line
// in, {body: base64, tools: [name]}, one line out. tests/conformance/readers.py compares.

import { createInterface } from 'node:readline';

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { jsonSchema, streamText, tool } from 'ai';
import OpenAI from 'openai';

globalThis.AI_SDK_LOG_WARNINGS = false;
console.log = console.info = console.debug = () => {}; // standard output is for answers

const baseURL = 'http://localhost/v1';
const apiKey = 'x';
const FINISHES = { 'tool-calls': 'tool_calls', 'content-filter': 'content_filter' };

const empty = () => ({ text: '', reasoning: null, calls: [], invalid: [], finish: '', usage: null });
const fetchOf = (body) => async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } });
const counts = (...found) => (found[0] === undefined ? null : found.map((count) => count ?? null));

// Nothing is known of the tools of a captured request, so each that is called is offered.
const schema = { type: 'object', properties: {}, additionalProperties: true };

async function openaiHelper(body, _, now) {
  const client = new OpenAI({ apiKey, baseURL, maxRetries: 0, logLevel: 'off', fetch: fetchOf(body) });
  const request = { model: 'm', messages: [], stream_options: { include_usage: true } };
  const { choices, usage } = await client.chat.completions.stream(request).finalChatCompletion();
  const { message, finish_reason } = choices.find(({ index }) => index === 0) ?? { message: {} };
  now.text = message.content ?? '';
  now.finish = finish_reason ?? '';
  now.usage = usage ? counts(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) : null;
  for (const { id, function: said } of message.tool_calls ?? []) {
    try {
      now.calls.push([id, said.name, JSON.parse(said.arguments || '{}')]);
    } catch {
      now.invalid.push([id, said.name, said.arguments]);
    }
  }
}

async function langchain(body, tools, now) {
  const configuration = { baseURL, fetch: fetchOf(body) };
  const model = new ChatOpenAI({ model: 'm', apiKey, configuration, streamUsage: true, maxRetries: 0 });
  const offered = tools.map((name) => ({ type: 'function', function: { name, parameters: schema } }));
  let whole;
  for await (const chunk of await model.bindTools(offered).stream([new HumanMessage('hi')])) {
    whole = whole ? whole.concat(chunk) : chunk;
  }
  now.text = whole?.content ?? '';
  now.reasoning = whole?.additional_kwargs.reasoning_content ?? '';
  now.calls = (whole?.tool_calls ?? []).map(({ id, name, args }) => [id, name, args]);
  now.invalid = (whole?.invalid_tool_calls ?? []).map(({ id, name, args }) => [id, name, args]);
  now.finish = whole?.response_metadata.finish_reason ?? '';
  const usage = whole?.usage_metadata;
  now.usage = usage ? counts(usage.input_tokens, usage.output_tokens, usage.total_tokens) : null;
}

async function vercel(model, tools, now) {
  const offered = tools.map((name) => [name, tool({ description: name, inputSchema: jsonSchema(schema) })]);
  const onError = () => {}; // it comes as a part
  const result = streamText({ model, prompt: 'hi', tools: Object.fromEntries(offered), maxRetries: 0, onError });
  for await (const part of result.fullStream) {
    if (part.type === 'text-delta') {
      now.text += part.text;
    } else if (part.type === 'reasoning-delta') {
      now.reasoning += part.text;
    } else if (part.type === 'tool-call') {
      (part.invalid ? now.invalid : now.calls).push([part.toolCallId, part.toolName, part.input]);
    } else if (part.type === 'finish-step') {
      now.finish = part.rawFinishReason ?? FINISHES[part.finishReason] ?? part.finishReason;
      now.usage = counts(part.usage.inputTokens, part.usage.outputTokens);
    } else if (part.type === 'error') {
      now.error ??= named(part.error);
    }
  }
}

const READERS = {
  openai_node: openaiHelper,
  langchain_node: langchain,
  vercel_openai: (body, tools, now) => vercel(createOpenAI({ baseURL, apiKey, fetch: fetchOf(body) }).chat('m'), tools, now),
  vercel_compatible: (body, tools, now) => {
    now.reasoning = '';
    const options = { name: 'px', baseURL, apiKey, includeUsage: true, fetch: fetchOf(body) };
    return vercel(createOpenAICompatible(options)('m'), tools, now);
  },
};

const named = (error) => `${error?.constructor?.name || 'unknown'}: ${error?.message ?? JSON.stringify(error)}`.slice(0, 300);

const read = READERS[process.argv[2]];
for await (const line of createInterface({ input: process.stdin })) {
  const { body, tools } = JSON.parse(line);
  const now = { ...empty(), error: null };
  try {
    await read(Buffer.from(body, 'base64'), tools, now);
  } catch (error) {
    now.error ??= named(error);
  }
  process.stdout.write(`${JSON.stringify({ ...now, error: now.error ?? '' })}\n`);
}
