// The official openai SDK for Node reads bodies out of memory: one JSON line in, {body: base64}, one line out with what
// it made of it, by plain iteration and by its helper. `tests/conformance/openai_node.py` compares.

import { createInterface } from 'node:readline';

import OpenAI from 'openai';
import { VERSION } from 'openai/version';

const request = { model: 'm', messages: [] };

function client(body) {
  const fetch = async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  return new OpenAI({ apiKey: 'x', baseURL: 'http://localhost/v1', maxRetries: 0, logLevel: 'off', fetch });
}

const named = (error) => error?.constructor?.name || 'unknown';

// What a program that adds up deltas would hold: everything is appended, so a role or a name sent twice shows.
class Sum {
  answers = {};
  usage = null;
  loop_error = '';

  add(chunk) {
    try {
      void chunk.choices[0].delta.content;
    } catch (error) {
      this.loop_error ||= named(error);
    }
    this.usage = chunk.usage ?? this.usage;
    for (const { index, delta, finish_reason } of chunk.choices) {
      const answer = (this.answers[index] ??= { role: '', text: '', reasoning: '', refusal: '', calls: [], finish: '' });
      answer.role += delta.role ?? '';
      answer.text += delta.content ?? '';
      answer.reasoning += delta.reasoning_content ?? '';
      answer.refusal += delta.refusal ?? '';
      answer.finish += finish_reason ?? '';
      for (const call of delta.tool_calls ?? []) {
        const known = (answer.calls[call.index] ??= { id: '', type: '', name: '', arguments: '' });
        known.id += call.id ?? '';
        known.type ||= call.type ?? ''; // as every SDK does
        known.name += call.function?.name ?? '';
        known.arguments += call.function?.arguments ?? '';
      }
      if (delta.function_call) {
        answer.legacy ??= { name: '', arguments: '' };
        answer.legacy.name += delta.function_call.name ?? '';
        answer.legacy.arguments += delta.function_call.arguments ?? '';
      }
    }
  }
}

async function iterated(body) {
  const sum = new Sum();
  let stream_error = '';
  try {
    for await (const chunk of await client(body).chat.completions.create({ ...request, stream: true })) {
      sum.add(chunk);
    }
  } catch (error) {
    stream_error = named(error);
  }
  return { ...sum, stream_error };
}

async function helped(body) {
  try {
    const completion = await client(body).chat.completions.stream(request).finalChatCompletion();
    const answers = {};
    for (const { index, message, finish_reason } of completion.choices) {
      answers[index] = {
        role: message.role,
        text: message.content ?? '',
        reasoning: null, // the helper keeps the last piece only, of this as of every member that it does not know
        refusal: message.refusal ?? '',
        calls: (message.tool_calls ?? []).map(({ id, type, function: { name, arguments: given } }) => ({
          id,
          type,
          name,
          arguments: given,
        })),
        legacy: message.function_call,
        finish: finish_reason ?? '',
      };
    }
    return { answers, usage: completion.usage ?? null, loop_error: '', stream_error: '' };
  } catch (error) {
    return { answers: null, usage: null, loop_error: '', stream_error: named(error) };
  }
}

console.log(JSON.stringify({ sdk: VERSION }));
for await (const line of createInterface({ input: process.stdin })) {
  const body = Buffer.from(JSON.parse(line).body, 'base64');
  console.log(JSON.stringify({ iterated: await iterated(body), helped: await helped(body) }));
}
