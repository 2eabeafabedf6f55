// The form that every driver speaks (tests/real/drivers/lines.py says it in full) and the tool that all of them offer.

import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

export const PARAMETERS = {
  type: 'object',
  properties: { city: { type: 'string', enum: ['Paris'] } },
  required: ['city'],
  additionalProperties: false,
};

export const NAME = 'get_weather';
export const DESCRIPTION = 'The weather of one town';
export const TOOL = { type: 'function', function: { name: NAME, description: DESCRIPTION, parameters: PARAMETERS } };

// The tool that is offered: this one, or the asker's.
export const toolOf = (asked) => (asked.tool === true ? TOOL : asked.tool);

// What it answers; it writes down what it is run with where that is asked for.
export function run(asked, given, ran) {
  ran.push(JSON.stringify(given));
  if (asked.record) appendFileSync(asked.record, JSON.stringify(given) + '\n');
  return `18 degrees in ${given?.city ?? JSON.stringify(given)}`;
}

// How often the client may ask again, as its option; nothing where that is left to it.
export const retriesOf = ({ retries }) => (retries === null ? {} : { maxRetries: retries });

export const failed = (error) => ({
  class: error?.constructor?.name || 'unknown',
  status: error?.status ?? error?.statusCode ?? null,
  code: error?.error?.code ?? error?.data?.error?.code ?? error?.code ?? null,
  message: error?.error?.message ?? error?.data?.error?.message ?? error?.message ?? String(error),
  retry_after: error?.headers?.get?.('retry-after') ?? error?.responseHeaders?.['retry-after'] ?? null,
});

export async function serve(answer) {
  for await (const line of createInterface({ input: process.stdin })) {
    const [turns, ran] = [[], []];
    let error = null;
    try {
      await answer(JSON.parse(line), turns, ran);
    } catch (raised) {
      error = failed(raised);
    }
    console.log(JSON.stringify({ turns, ran, error }));
  }
}
