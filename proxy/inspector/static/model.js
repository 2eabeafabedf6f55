// Requests, the fold over the inspect feed, and how values are written.

/** The data of an exported page, or null on a server. */
export const embedded = JSON.parse(document.getElementById("tape")?.textContent || "null");
const TOKEN = "wiretape.token", SLICE_MS = 12, GAP_US = 250_000;

export function takeToken() {
	const found = /[#&]token=([^&]+)/.exec(location.hash);
	if (!found) return;
	sessionStorage.setItem(TOKEN, decodeURIComponent(found[1]));
	history.replaceState(null, "", location.pathname + location.search);
}

async function request(path, signal) {
	const token = sessionStorage.getItem(TOKEN);
	const response = await fetch(`/wiretape/${path}`, { headers: token ? { Authorization: `Bearer ${token}` } : {}, signal });
	if (response.ok) return response;
	const { error } = await response.json().catch(() => ({}));
	throw Object.assign(new Error(error?.message ?? response.statusText), { status: response.status });
}

export async function getJson(path, signal) {
	return (await request(path, signal)).json();
}

export async function* getLines(path, signal) {
	const reader = (await request(path, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (;;) {
		const { value, done } = await reader.read();
		if (done) return;
		const lines = (rest + value).split("\n");
		rest = lines.pop();
		yield lines;
	}
}

export function streamPath(id, rest = "") {
	return `streams/${encodeURIComponent(id)}${rest}`;
}

/** Changes of a record, as bits. */
export const EDITED = 1, WITHHELD = 2, ADDED = 4;
const KNOWN = 8, RECEIVED = new Set(["head", "frame", "rest", "body"]);
const CHANNELS = { TextDelta: "text", ReasoningDelta: "reasoning", RefusalDelta: "refusal" };

/** What one stream's feed told so far. Indexes (`i`) count records from 0; times are microseconds. */
export class Tape {
	/** Of each record; parsed again when it is shown. */
	lines = [];
	n = [];
	t = [];
	kind = [];
	size = [];
	sent = [];
	bits = [];
	reads = [];
	repaired = [];
	toolEvents = [];
	channels = new Map();
	calls = new Map();
	attempts = [];
	ended = null;
	damage = [];
	request = null;
	head = null;
	withRepairs = false;
	version = 0;
	#gaps = [];
	#gapsAt = 0;
	#held = [];
	#heldAt = -1;

	get count() {
		return this.lines.length;
	}
	get duration() {
		return this.t.at(-1) ?? 0;
	}

	take(line) {
		const record = line ? JSON.parse(line) : {};
		if (record.damage) this.damage = record.damage;
		if (typeof record.n !== "number") return;
		let i = this.indexOf(record.n);
		if (this.n[i] === record.n) this.lines[i] = line;
		else this.#add((i = this.count), line, record);
		if (record.repairs && !this.bits[i]) {
			this.repaired.push(i);
			this.bits[i] = record.repairs.reduce((bits, each) => bits | changeOf(each), KNOWN);
		}
		this.version++;
	}

	#add(i, line, { n, t, k, out, bytes = 0, keys = Object(), events = [], moves = [], ...record }) {
		this.lines.push(line);
		this.n.push(n);
		this.t.push(t);
		this.kind.push(k);
		this.size.push(bytes);
		this.sent.push(out === 1 ? bytes : (out?.join("").length ?? 0));
		this.bits.push(0);
		if (RECEIVED.has(k)) this.reads.push(i);
		if (k === "request") this.request = { keys, ...record };
		else if (k === "attempt") this.attempts.push({ i, status: "–" });
		else if (k === "end") this.ended = { i, ending: keys.ending, cause: keys.cause };
		else if (k === "head") {
			this.head = keys;
			if (this.attempts.length) this.attempts.at(-1).status = keys.status;
		}
		for (const event of events) this.#event(i, event);
		for (const move of moves) this.#call(move, i).moves.push({ i, state: move.state });
	}

	#event(i, event) {
		const { type, choice, text } = event, name = CHANNELS[type];
		if (name) {
			const key = `${name} ${choice}`, into = this.channels.get(key) || { name, choice, text: "", at: [], ends: [] };
			this.channels.set(key, into);
			into.text += text;
			into.at.push(i);
			into.ends.push(into.text.length);
		} else if (type === "ToolCallStarted") this.#call(event, i);
		else if (type === "ToolNameDelta") this.#call({ ...event, name: "" }, i).name += event.name;
		else if (type === "ToolArgumentsDelta") {
			const call = this.#call(event);
			call.text += text;
			call.at.push(i);
			call.ends.push(call.text.length);
		} else if (type === "AttemptStarted") this.channels.clear(), this.calls.clear();
	}

	#call({ choice, call, id = "", name = "" }, i) {
		const key = `${choice}.${call}`, found = this.calls.get(key) || { key, id, name, text: "", at: [], ends: [], moves: [] };
		this.calls.set(key, found);
		found.id ||= id;
		found.name ||= name;
		if (i !== undefined && this.toolEvents.at(-1) !== i) this.toolEvents.push(i);
		return found;
	}

	indexOf(n) {
		return lowerBound(this.n, n);
	}
	at(t) {
		return Math.max(0, lowerBound(this.t, t + 0.5) - 1);
	}
	record(i) {
		return JSON.parse(this.lines[i]);
	}

	/** Silences of the upstream that are longer than max(250 ms, 10 medians). */
	gaps() {
		const { reads, t, ended } = this, grown = reads.length + (ended ? 0.5 : 0) - this.#gapsAt;
		if (!grown || (!ended && grown < this.#gapsAt / 50)) return this.#gaps;
		this.#gapsAt += grown;
		const all = [...reads, ...(ended ? [ended.i] : [])].map((i, k) => ({ i, from: t[reads[k - 1] ?? i], to: t[i] }));
		const lengths = Float64Array.from(all, ({ from, to }) => to - from).filter(Boolean).sort();
		const least = Math.max(GAP_US, 10 * (lengths[lengths.length >> 1] || 0));
		return (this.#gaps = all.filter(({ from, to }) => to - from > least));
	}

	/** Times from arrival to delivery of output that was held back. */
	held() {
		if (!this.withRepairs || this.#heldAt === this.count) return this.#held;
		this.#held = [];
		this.#heldAt = this.count;
		let since = -1;
		this.t.forEach((t, i) => {
			if (this.sent[i] || i === this.count - 1) {
				if (since >= 0) this.#held.push([since, t]);
				since = -1;
			} else if (since < 0 && this.kind[i] === "frame" && !(this.bits[i] & WITHHELD) && this.lines[i].includes('"events":')) since = t;
		});
		return this.#held;
	}
}

function changeOf(repair) {
	if (repair.key === undefined && "before" in repair !== "after" in repair) return "before" in repair ? WITHHELD : ADDED;
	return "before" in repair || "after" in repair ? EDITED : 0;
}

export function lowerBound(sorted, value) {
	let low = 0, high = sorted.length;
	while (low < high) {
		const mid = (low + high) >> 1;
		if (sorted[mid] < value) low = mid + 1;
		else high = mid;
	}
	return low;
}

export function textAt({ text, at, ends }, i) {
	return text.slice(0, ends[lowerBound(at, i + 1) - 1] ?? 0);
}

export async function readFeed(id, tape, repairs, changed, signal) {
	const from = repairs || !tape.count ? 0 : tape.n.at(-1) + 1;
	let since = performance.now();
	for await (const lines of getLines(streamPath(id, `/inspect?from=${from}&repairs=${repairs ? 1 : 0}`), signal)) {
		for (const line of lines) {
			tape.take(line);
			if (performance.now() - since < SLICE_MS) continue;
			changed();
			await new Promise((resolve) => setTimeout(resolve));
			since = performance.now();
		}
		changed();
	}
	tape.withRepairs ||= repairs;
	tape.version++;
	changed();
}

const ODD = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Show controls as pictures, invisible and bidirectional characters as U+…. */
export function show(value) {
	const text = typeof value === "object" && value ? JSON.stringify(value) : String(value ?? "");
	return text.replace(ODD, (odd) => {
		const code = odd.codePointAt(0);
		return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
	});
}

export function line(value, most = 200) {
	const text = typeof value === "string" ? value : show(value);
	return show(text.length > most ? `${text.slice(0, most)}…` : text).replace(/\n/g, "⏎").replace(/\t/g, "⇥");
}

export function duration(us) {
	if (us < 1000) return `${us} µs`;
	if (us < 999_500) return `${us < 9950 ? (us / 1000).toFixed(1) : Math.round(us / 1000)} ms`;
	if (us < 59_950_000) return `${(us / 1e6).toFixed(us < 9_995_000 ? 2 : 1)} s`;
	const s = Math.round(us / 1e6), h = Math.floor(s / 3600), min = Math.floor(s / 60) % 60;
	return h ? `${h} h ${min} min` : `${min} min ${s % 60} s`;
}

export function number(count) {
	return String(count ?? "–").replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function clock(seconds) {
	const at = new Date(seconds * 1000), [day, time] = new Date(+at - at.getTimezoneOffset() * 60_000).toISOString().split("T");
	return (at.toDateString() === new Date().toDateString() ? "" : `${day} `) + time.slice(0, 8);
}

export function pretty(text) {
	try {
		return JSON.stringify(JSON.parse(text), null, 2);
	} catch {
		return text;
	}
}

const TOLD = {
	TextDelta: "text text", ReasoningDelta: "reasoning text", RefusalDelta: "refusal text", ToolCallStarted: "call name id", ToolNameDelta: "call name", ToolArgumentsDelta: "args text", ToolResultSeen: "result name output",
	ToolProgress: "tool name status", ResponseStarted: "response model", Finish: "finish reason", Usage: "usage counts", UpstreamError: "error message code", ForeignFrame: "foreign why", Ended: "end ending cause",
};

export function describe(event) {
	const [tag, ...members] = (TOLD[event.type] || "event type").split(" ");
	return [tag, members.map((each) => line(event[each])).join(" ")];
}

const KINDS = { request: " method path", attempt: " number upstream dialect", head: " status", commit: " status", failed: "error ending status message", end: "end ending cause" };

export function summaryOf({ k, keys = {}, events = [], ...record }) {
	const [tag, ...members] = (KINDS[k] || "").split(" ");
	if (members.length) return [tag, members.map((each) => line(keys[each])).join(" ")];
	const telling = events.find(({ type }) => !/^(Response|Attempt)Started/.test(type)) || events[0];
	return telling ? describe(telling) : ["", line(record.in, 120)];
}
