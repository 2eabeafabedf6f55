// Vercel's `ai`: `streamText` with a tool that it runs by itself; mode `openai` is @ai-sdk/openai on chat completions,
// `responses` the same on Responses, `messages` @ai-sdk/anthropic; otherwise it is @ai-sdk/openai-compatible.

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { jsonSchema, stepCountIs, streamText, tool as define } from 'ai';

import { NAME, retriesOf, run, serve, toolOf } from './lines.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false; // standard output is for answers

const FINISHES = { 'tool-calls': 'tool_calls', 'content-filter': 'content_filter' };

function modelOf({ base_url: baseURL, key: apiKey, model, usage, mode }) {
  if (mode === 'responses') return createOpenAI({ baseURL, apiKey }).responses(model);
  if (mode === 'messages') return createAnthropic({ baseURL, apiKey })(model);
  if (mode === 'openai') return createOpenAI({ baseURL, apiKey }).chat(model);
  return createOpenAICompatible({ name: 'px', baseURL, apiKey, includeUsage: usage })(model);
}

function toolsOf(asked, ran) {
  const { description, parameters } = toolOf(asked).function;
  const execute = async (given) => run(asked, given, ran);
  return { [NAME]: define({ description, inputSchema: jsonSchema(parameters), execute }) };
}

await serve(async (asked, turns, ran) => {
  const { prompt, tool, timeout } = asked;
  const forced = { toolChoice: { type: 'tool', toolName: NAME } };
  const result = streamText({
    model: modelOf(asked),
    prompt,
    tools: tool ? toolsOf(asked, ran) : undefined,
    stopWhen: stepCountIs(asked.turns),
    prepareStep: ({ stepNumber }) => (tool && stepNumber === 0 ? forced : {}),
    onError: () => {}, // it comes as a part
    abortSignal: AbortSignal.timeout(timeout * 1000),
    ...retriesOf(asked),
  });
  let raised;
  let now;
  for await (const part of result.fullStream) {
    if (part.type === 'start-step') {
      turns.push((now = { text: '', calls: [], finish: '', usage: null }));
    } else if (part.type === 'text-delta') {
      now.text += part.text;
    } else if (part.type === 'tool-call') {
      now.calls.push([part.toolCallId, part.toolName, JSON.stringify(part.input)]);
    } else if (part.type === 'finish-step') {
      now.finish = part.rawFinishReason ?? FINISHES[part.finishReason] ?? part.finishReason;
      const { inputTokens, outputTokens } = part.usage;
      now.usage = inputTokens === undefined ? null : [inputTokens, outputTokens];
    } else if (part.type === 'abort') {
      raised ??= new Error('aborted after its time');
    } else if (part.type === 'error') {
      raised ??= part.error;
    }
  }
  if (raised) throw raised.lastError ?? raised;
});
