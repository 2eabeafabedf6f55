// The list of streams, and what runs now.
import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { clock, duration, getJson, getLines, number, line } from "./model.js";
import { address, announce, change, CopyButton, EndingBadge, Failure, go, Grid, Icon, Num, Page, StreamLink, table, Tokens, ToolBadge, useKeys, useSize } from "./parts.js";

const ROWS = 200, TICK_MS = 1000, MARK = "wiretape.mark";

export function markForDiff(id) {
	const marked = sessionStorage.getItem(MARK);
	sessionStorage.setItem(MARK, marked ? "" : id);
	if (id && marked && marked !== id) return go(address("diff", [marked, id]));
	go(location.href, true);
	announce(marked ? "Forgotten." : "Marked.", true);
}

/** The rows that match a filter. A row replaces the one with its id; a filtered list is read again. */
export function useRows(query) {
	const [state, set] = useState({}), more = useRef(null);
	useEffect(() => {
		const stop = new AbortController(), { signal } = stop;
		let rows = new Map(), next = null, again = 0;
		const put = (changes) => signal.aborted || set((old) => ({ ...old, ...changes, next, rows: [...rows.values()] }));
		const read = async (before) => {
			const page = await getJson(`streams?limit=${ROWS}&${new URLSearchParams({ ...(query && { q: query }), ...(before && { before }) })}`, signal);
			rows = new Map([...(before ? rows : []), ...page.streams.map((row) => [row.id, row])]);
			next = page.next;
			put({ error: null, connected: true });
			if (query && page.streams.some(({ live }) => live)) repeat();
		};
		const repeat = () => (again ||= setTimeout(() => ((again = 0), read().catch(() => {})), TICK_MS));
		const take = (line) => {
			const row = JSON.parse(line || "{}");
			if (!row.id) return;
			announce(`${row.model || "A stream"}: ${row.live ? "began" : row.ending}.`);
			if (!query) rows = rows.has(row.id) ? rows.set(row.id, row) : new Map([[row.id, row], ...rows]);
			else repeat();
		};
		const follow = async () => {
			while (!signal.aborted) {
				try {
					await read();
					for await (const lines of getLines("streams?follow=1", signal)) {
						lines.forEach(take);
						put();
					}
				} catch (error) {
					if (error.status) return set({ error });
				}
				if (!signal.aborted) set((old) => ({ ...old, connected: false }));
				await new Promise((resolve) => setTimeout(resolve, 2 * TICK_MS));
			}
		};
		more.current = () => {
			const before = next;
			next = null;
			if (before) read(before).catch(() => {});
		};
		follow();
		return () => (stop.abort(), clearTimeout(again));
	}, [query]);
	return { ...state, more: () => more.current() };
}

const KEYS = "model ending tool state repair route dialect path live gap lost since until run".split(" ");
const VALUES = {
	ending: "completed truncated reset stalled upstream_error refused protocol limit client_gone shutdown crashed internal", state: "ready running completed failed dropped malformed abandoned",
	dialect: "chat responses messages", live: "yes no", lost: "yes", gap: ">1s >5s >30s", since: "15m 1h 1d",
};

function completions(text, rows) {
	const word = /[^\s"]*$/.exec(text)[0], before = text.slice(0, text.length - word.length), key = /^([a-z]+):/.exec(word)?.[1];
	if (!key) return KEYS.map((each) => `${before}${each}:`);
	const seen = VALUES[key]?.split(" ") || rows.flatMap((row) => (key === "tool" ? row.tools.map(({ name }) => name) : row[key]));
	return [...new Set(seen)].filter((each) => /^[^\s"]+$/.test(each ?? "")).map((each) => `${before}${key}:${each}`);
}

function Filter({ query, rows, onChange }) {
	const [text, setText] = useState(query), input = useRef(null), timer = useRef(0), options = useMemo(() => completions(text, rows), [text, rows]);
	useEffect(() => void (query !== text.trim() && setText(query)), [query]);
	useKeys({ "/": () => input.current.focus() });
	const onInput = ({ target: { value } }) => {
		setText(value);
		clearTimeout(timer.current);
		timer.current = setTimeout(() => onChange(value.trim()), 200);
	};
	const onKeyDown = ({ key }) => (key === "Enter" || key === "Escape") && (document.getElementById("streams") || input.current).focus();
	return html`<input ref=${input} list=completions aria-label="Filter streams" autocomplete=off spellcheck=false placeholder='Filter: ending:truncated tool:write_file gap:>5s "exact words"' value=${text} onInput=${onInput} onKeyDown=${onKeyDown} />
		<datalist id=completions>${options.map((each) => html`<option value=${each} />`)}</datalist>`;
}

const COLUMNS = [
	["ending", "Ending"], ["time", "Time"], ["model", "Model"], ["route", "Route"], ["sparkline", "Bytes over time"], ["tools", "Tools"], ["tokens", "Tokens"],
	["first", "First", "First content"], ["duration", "Duration"], ["attempts", "Tries"], ["repaired", "Repairs"],
];
const SORTS = ["ending", "model", "output_tokens", "first_content_us", "duration_us", "attempts", "repairs"];

function cellsOf(row) {
	const { tools, attempts } = row;
	return [
		html`<${EndingBadge} row=${row} />`,
		html`<time>${clock(row.created)}</time>`,
		row.model ? line(row.model, 60) : html`<small>${line(row.path || "–", 60)}</small>`,
		html`<small>${line(row.route || "default", 30)}</small>`,
		html`<${Spark} row=${row} />`,
		[...tools.slice(0, 3).map(({ name, state }) => html`<${ToolBadge} name=${name} state=${state} />`), tools.length > 3 && `+${tools.length - 3}`],
		html`<${Tokens} row=${row} />`,
		html`<${Num} value=${row.first_content_us} us />`,
		html`<${Num} value=${row.duration_us} us />`,
		attempts > 1 ? html`<span class=warn>${attempts}</span>` : html`<small>1</small>`,
		html`<${Num} value=${row.repairs} />`,
	];
}

function Spark({ row: { spark, live, ending } }) {
	const values = spark || [], most = Math.log1p(Math.max(1, ...values)), step = 120 / values.length;
	const bars = values.map((value, at) => (value ? `M${(at + 0.5) * step} 17V${17 - Math.max(1.5, (Math.log1p(value) / most) * 15)}` : "")).join("");
	return html`<svg class=spark viewBox="0 0 120 18" aria-hidden=true><path class=axis d="M0 17.5H120" /><path d=${bars} />${!live && ending !== "completed" && html`<path class=cut d="M119 1V18" />`}</svg>`;
}

export function Streams({ place }) {
	const { q = "", sort = "", live } = place.state, query = [q, live && "live:yes"].filter(Boolean).join(" "), { rows, error, connected, next, more } = useRows(query);
	const [chosen, setChosen] = useState(""), main = useRef(null), [width] = useSize(main), marked = sessionStorage.getItem(MARK), key = SORTS.includes(sort) && sort;
	const sorted = useMemo(() => (key ? (rows || []).toSorted((a, b) => (a[key]?.localeCompare ? a[key].localeCompare(b[key]) : (b[key] ?? -1) - (a[key] ?? -1))) : rows || []), [rows, sort]), at = sorted.findIndex(({ id }) => id === chosen);
	const open = (k) => sorted[k] && go(address("s", [sorted[k].id])), step = (by) => setChosen(sorted[Math.max(0, Math.min(sorted.length - 1, at + by))]?.id), turnLive = () => change(place, { live: live ? null : "1" }, false);
	useKeys({ j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1), Enter: () => open(at), d: () => at >= 0 && markForDiff(chosen), l: turnLive });
	return html`<main ref=${main} class="page list"><h1 class=hidden>Streams</h1>
		<div class=bar><${Filter} query=${q} rows=${rows || []} onChange=${(value) => value !== q && change(place, { q: value })} /><label><input type=checkbox checked=${Boolean(live)} onChange=${turnLive} />live</label>
			<label>sort <select value=${sort} onChange=${(event) => change(place, { sort: event.target.value }, false)}><option value="">latest</option>${SORTS.map((each) => html`<option value=${each}>${each.replace(/_us|_/g, " ")}</option>`)}</select></label>
			<small role=status>${rows ? `${number(rows.length)}${next ? "+" : ""} streams` : "reading…"}${connected === false && ", no connection"}</small></div>
		${marked && html`<p class=notice>To compare <${StreamLink} id=${marked} />, press <kbd>d</kbd> on another stream. <button class=small onClick=${() => markForDiff("")}>Forget</button></p>`}
		${error ? html`<${Failure} error=${error} />` : rows?.length === 0 && (query ? html`<p>No stream matches. <a href=${address("")}>Show all</a></p>` : html`<${Welcome} />`)}
		${sorted.length > 0 && html`<${Grid} id=streams label=Streams columns=${COLUMNS} count=${sorted.length} rowHeight=${width && width < 720 ? 52 : 30} keyOf=${(k) => sorted[k].id} cells=${(k) => (next && k > sorted.length - 20 && more(), cellsOf(sorted[k]))}
			rowClass=${(k) => (sorted[k].id === marked ? "marked" : "")} selected=${at} onSelect=${(k) => setChosen(sorted[k].id)} onOpen=${open} />`}</main>`;
}

function Welcome() {
	const base = location.origin, lines = [
		["OpenAI clients", `export OPENAI_BASE_URL=${base}/v1`],
		["Anthropic clients", `export ANTHROPIC_BASE_URL=${base}`],
		["or at once", `curl -N ${base}/v1/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' -d '{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"Say hello"}]}'`],
	];
	return html`<div class=empty><${Icon} name=tape /><h2>Connect a client</h2><p>Point it at Wiretape instead of the provider. Nothing else changes.</p>
		${lines.map(([title, text]) => html`<div class=connect><span>${title}</span><code tabIndex=0>${text}</code><${CopyButton} text=${text} /></div>`)}<p role=status>Waiting for the first request…</p></div>`;
}

export function Now() {
	const { rows, error } = useRows("live:yes");
	return html`<${Page} title=Now error=${error} ready=${rows}>${rows?.length ? html`<div class="panel pad">${table(["Stream", "Model", "Route", "Running for", "First content", "Silence", "Tools"], rows.map((row) => [html`<${StreamLink} id=${row.id} />`, line(row.model || row.path || "–", 60),
		line(row.route || "default"), duration(Math.max(0, Math.round(Date.now() / 1000 - row.created)) * 1e6), html`<${Num} value=${row.first_content_us} us />`, html`<${Num} value=${row.silence_us} us />`, row.tools.map(({ name, state }) => html`<${ToolBadge} name=${name} state=${state} />`)]))}</div>`
		: html`<p>Nothing is running.</p>`}<//>`;
}
