// Vercel's `ai` with @ai-sdk/openai-compatible: `streamText` with a tool that it runs by itself, at most two steps.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { jsonSchema, stepCountIs, streamText, tool as define } from 'ai';

import { DESCRIPTION, NAME, PARAMETERS, resultOf, serve } from './lines.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false; // standard output is for answers

const FINISHES = { 'tool-calls': 'tool_calls', 'content-filter': 'content_filter' };

await serve(async ({ base_url, key, model, prompt, tool, usage, retries }, turns, ran) => {
  const provider = createOpenAICompatible({ name: 'px', baseURL: base_url, apiKey: key, includeUsage: usage });
  const execute = async (given) => {
    ran.push(JSON.stringify(given));
    return resultOf(given);
  };
  const tools = tool
    ? { [NAME]: define({ description: DESCRIPTION, inputSchema: jsonSchema(PARAMETERS), execute }) }
    : undefined;
  const forced = { toolChoice: { type: 'tool', toolName: NAME } };
  const result = streamText({
    model: provider(model),
    prompt,
    tools,
    maxRetries: retries,
    stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => (tool && stepNumber === 0 ? forced : {}),
    onError: () => {}, // it comes as a part
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
    } else if (part.type === 'error') {
      raised ??= part.error;
    }
  }
  if (raised) throw raised.lastError ?? raised;
});
