// `ai` in front of Wiretape, in any of three dialects: `node vercel.mjs chat`, `responses` or `messages`.

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { jsonSchema, stepCountIs, streamText, tool } from 'ai';

const settings = { baseURL: 'http://127.0.0.1:8787/v1', apiKey: process.env.API_KEY };
const models = {
  chat: () => createOpenAI(settings).chat('some-model'),
  responses: () => createOpenAI(settings).responses('some-model'),
  messages: () => createAnthropic(settings)('some-model'),
};

const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const result = streamText({
  model: models[process.argv[2]](),
  prompt: 'How is the weather in Paris?',
  tools: {
    get_weather: tool({
      description: 'The weather of one town',
      inputSchema: jsonSchema(parameters),
      execute: async ({ city }) => `18 degrees in ${city}`,
    }),
  },
  stopWhen: stepCountIs(5),
  onError: ({ error }) => {
    throw error;
  },
});
for await (const part of result.textStream) process.stdout.write(part);
console.log();
