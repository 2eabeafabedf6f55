// The official SDKs for Node read Responses and Messages streams out of memory with their helpers: one JSON line in,
// {dialect, body: base64}, one line out with what each helper holds at the end, or the error that it raised.
// `tests/conformance/helpers_node.py` compares.

import { createInterface } from 'node:readline';

import Anthropic from '@anthropic-ai/sdk';
import { VERSION as anthropicVersion } from '@anthropic-ai/sdk/version';
import OpenAI from 'openai';
import { VERSION as openaiVersion } from 'openai/version';
import OpenAI6 from 'openai6';
import { VERSION as openai6Version } from 'openai6/version';

function client(SDK, body) {
  const fetch = async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  return new SDK({ apiKey: 'x', baseURL: 'http://localhost/v1', maxRetries: 0, logLevel: 'off', fetch });
}

const answer = (SDK) => (body) => client(SDK, body).responses.stream({ model: 'm', input: 'q' }).finalResponse();
const asked = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'q' }] };

const READERS = {
  responses: { 'openai-node 7': answer(OpenAI), 'openai-node 6': answer(OpenAI6) },
  messages: {
    'anthropic-node': (body) => client(Anthropic, body).messages.stream(asked).finalMessage(),
    'anthropic-node beta': (body) => client(Anthropic, body).beta.messages.stream(asked).finalMessage(),
  },
};

async function held(read, body) {
  try {
    return { final: await read(body), error: '' };
  } catch (error) {
    return { final: null, error: `${error?.constructor?.name}: ${error?.message}`.slice(0, 300) };
  }
}

console.log(JSON.stringify({ 'openai-node 7': openaiVersion, 'openai-node 6': openai6Version, 'anthropic-node': anthropicVersion }));
for await (const line of createInterface({ input: process.stdin })) {
  const { dialect, body } = JSON.parse(line);
  const bytes = Buffer.from(body, 'base64');
  const results = {};
  for (const [name, read] of Object.entries(READERS[dialect])) {
    results[name] = await held(read, bytes);
  }
  console.log(JSON.stringify(results));
}
