// What "Copy" offers.
import { embedded, getLines, streamPath } from "./model.js";

/** The variable with the base URL, headers, and Python's module, class and resource. */
const OPENAI = ["OPENAI_BASE_URL", ["Authorization: Bearer $OPENAI_API_KEY"]];
const CLIENTS = {
	chat: [...OPENAI, ["openai", "OpenAI", "chat.completions"]],
	responses: [...OPENAI, ["openai", "OpenAI", "responses"]],
	messages: ["ANTHROPIC_BASE_URL", ["x-api-key: $ANTHROPIC_API_KEY", "anthropic-version: 2023-06-01"], ["anthropic", "Anthropic", "messages"]],
};

/** The feed shortens the body of the request; the tape has it. */
async function bodyOf(id, { request }) {
	if (!request?.more || embedded) return request?.in ?? "";
	const stop = new AbortController();
	let rest = "";
	for await (const lines of getLines(streamPath(id, "/tape"), stop.signal)) {
		rest = lines.find((each) => each.includes('"k":"request"'));
		if (rest) break;
	}
	stop.abort();
	const at = rest.indexOf(',"data":');
	return at < 0 ? JSON.parse(rest).raw : rest.slice(at + 8, -1);
}

function shell(text) {
	return /^[\w/.~%-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function curl(base, { keys }, body, headers) {
	const method = keys.method === "POST" || keys.method === "GET" ? "" : `-X ${keys.method} `;
	return [`curl -N ${method}${base}${shell(keys.path)}`, ...headers.map((each) => `-H "${each}"`), ...(body ? ["-H 'Content-Type: application/json'", `-d ${shell(body)}`] : [])].join(" \\\n  ");
}

function framesTo(tape, at) {
	const from = tape.attempts.findLast((each) => each.i <= at)?.i ?? 0;
	return tape.reads.filter((i) => i > from && i <= at && tape.kind[i] === "frame");
}

/** @returns {any[][]} */
export function copies(id, tape, at, summary) {
	const request = { keys: { method: "POST", path: "/", ...tape.request?.keys } }, { path } = request.keys, client = CLIENTS[summary?.dialect], [variable, headers, python] = client || CLIENTS.chat;
	const frames = framesTo(tape, at), place = frames.length ? `frame:${frames.length}` : "start", calls = [...tape.calls.values()], ending = tape.ended?.ending || "live";
	const lost = calls.find(({ moves }) => /dropped|malformed/.test(moves.at(-1)?.state)) || calls[0], name = `${lost ? lost.name : "stream"}_${ending}`.toLowerCase().replace(/\W+/g, "_");
	// The base URL of OpenAI's SDKs ends with /v1.
	const base = variable === "OPENAI_BASE_URL" && path.startsWith("/v1/") ? `"\${${variable}%/v1}"` : `"$${variable}"`;
	return [
		["curl", async () => curl(base, request, await bodyOf(id, tape), headers)],
		["curl to a replay", async () => `wiretape replay ${id} &\n${curl("--retry 9 --retry-connrefused 127.0.0.1:8788", request, await bodyOf(id, tape), [])}`],
		...(client ? [["Python", async () => `import json

from ${python[0]} import ${python[1]}

request = json.loads(${JSON.stringify(await bodyOf(id, tape))})
answer = ${python[1]}().${python[2]}.create(**request)
for each in answer if request.get("stream") else [answer]:
    print(each)
`], ["pytest and its tape", async () => `# wiretape seal ${id} -o tapes/${name}.tape
import contextlib
import json

import httpx
import pytest


@pytest.mark.tape("${name}.tape")
def test_${name}(tape):
    with contextlib.suppress(httpx.HTTPError):  # your own code instead, with base_url=tape.url
        httpx.post(tape.root + ${JSON.stringify(path)}, json=json.loads(${JSON.stringify(await bodyOf(id, tape))}))
    assert tape.fold.ending == ${JSON.stringify(ending)}
`]] : []),
		["replay with a reset here", () => `wiretape replay ${id} --fault reset@${place}`],
		["cut here", () => `wiretape cut ${id} --after ${place} -o ${name}.cut.tape`],
		["raw SSE up to here", () => frames.map((i) => tape.record(i).in ?? "").join("")],
		...(embedded ? [] : [["link to this record", () => `${location.origin}${location.pathname}#n=${tape.n[at]}`]]),
	];
}
