// More than one stream.
import { html, useMemo, useRef } from "./vendor/preact-htm.js";
import { clock, duration, getJson, line, show, streamPath } from "./model.js";
import { EndingBadge, Num, Page, StreamLink, table, Tokens, ToolBadge, useKeys, useRead } from "./parts.js";
import { useRows } from "./list.js";

function RowLine({ row, name }) {
	return html`<div class=bar><strong>${name}</strong><${EndingBadge} row=${row} /><${StreamLink} id=${row.id} /><span>${line(row.model || row.path, 60)}</span><small>${clock(row.created)}</small><${Num} value=${row.duration_us} us /></div>`;
}

function Strips({ a, b }) {
	const most = Math.max(1, a.at(-1) ?? 0, b.at(-1) ?? 0), x = (t) => Math.round((t / most) * 1000), ticks = (all, y) => [...new Set(all.map(x))].map((x) => `M${x} ${y}v14`).join("");
	const later = a.slice(0, b.length).map((t, k) => b[k] - t), far = later.reduce((most, each) => Math.max(most, Math.abs(each)), 1);
	return html`<svg class=strips viewBox="0 0 1000 64" preserveAspectRatio=none aria-hidden=true><path class=a d=${ticks(a, 3)} /><path class=b d=${ticks(b, 21)} /><path class=axis d="M0 50H1000" /><path d=${later.map((us, k) => `${k ? "L" : "M"}${x(a[k])} ${50 - (us / far) * 12}`).join("")} /></svg>
		<p><small>A lasted ${duration(a.at(-1) ?? 0)}, B ${duration(b.at(-1) ?? 0)}. The line shows how much later B was, at most ${duration(far)}.</small></p>`;
}

export function Diff({ place: { ids: [a, b] } }) {
	const [diff, error] = useRead(() => getJson(`diff?${new URLSearchParams({ a, b })}`)), at = useRef(-1);
	const next = (by) => {
		const all = [...document.querySelectorAll(".difference, pre mark")];
		at.current = (at.current + by + all.length) % all.length;
		all[at.current]?.scrollIntoView({ block: "center" });
		all.forEach((each, k) => each.classList.toggle("current", k === at.current));
	};
	useKeys({ j: () => next(1), k: () => next(-1), n: () => next(1) });
	const { differences: all = [], text, calls, times, equal } = diff || {}, one = (value) => line(value ?? "–", 300);
	const panel = (title, content) => html`<section class="panel pad"><h2>${title}</h2>${content}</section>`, words = (side) => html`<pre>${text[side].map(([word, same]) => (same ? show(word) : html`<mark>${show(word)}</mark>`))}</pre>`;
	return html`<${Page} title=Comparison error=${error} ready=${diff}><div class="panel pad"><${RowLine} row=${diff?.a} name=A /><${RowLine} row=${diff?.b} name=B /></div>
		<p class=${`notice ${equal ? "ok" : "warn"}`}>${equal ? "The same content." : html`${all.length} ${all.length === 1 ? "difference" : "differences"}. <button class=small onClick=${() => next(1)}>Next difference <kbd>n</kbd></button>`}</p>
		${all.length > 0 && panel("Differences", html`<ol>${all.map((each) => html`<li class=difference><code>${one(each.path)}</code>${each.breaking && html` <b class=bad>breaking</b>`}<dl class=change><dt>A</dt><dd><code>${one(each.a)}</code></dd><dt>B</dt><dd><code>${one(each.b)}</code></dd></dl></li>`)}</ol>`)}
		${text && panel("Text", html`<div class=both>${words("a")}${words("b")}</div>`)}
		${calls?.length > 0 && panel("Tool calls", table(Object.keys(calls[0]).map(show), calls.map((call) => Object.values(call).map(one))))}
		${times && panel("Times", html`<${Strips} ...${times} />`)}<//>`;
}

function Turns({ streams, runs }) {
	const us = (row) => row.created_us ?? row.created * 1e6, ends = (row) => us(row) + (row.duration_us ?? 0), start = Math.min(...streams.map(us)), whole = Math.max(...streams.map(ends)) - start || 1;
	const calls = (row) => row.calls || row.tools, turn = (id) => streams.findIndex((each) => each.id === id) + 1;
	const lane = (title, tone, from, to) => html`<div class=lane><code>${title}</code><svg viewBox="0 0 100 10" preserveAspectRatio=none><rect class=${tone} x=${Math.min(99.5, ((from - start) / whole) * 100)} y=2 width=${Math.max(0.5, ((to - from) / whole) * 100)} height=6 /></svg></div>`;
	return html`<div class="panel pad" aria-hidden=true>${streams.map((row, k) => html`${lane(`turn ${k + 1}`, row.ending === "completed" ? "ok" : "bad", us(row), ends(row))}${calls(row).map((call) => lane(line(call.name, 14), "call", ends(row), ends(row) + (call.duration_ms ?? 0) * 1000))}`)}</div>
		<ol>${streams.map((row, k) => html`<li class="panel pad"><${RowLine} row=${row} name=${`Turn ${(runs && row.turn) || k + 1}`} /><p><small>First content <${Num} value=${row.first_content_us} us />, tokens <${Tokens} row=${row} /></small></p>
			${calls(row).length > 0 && table(["Tool", "State", "Result after", "In"], calls(row).map(({ name, state, duration_ms: ms, answered_by: by }) => [html`<${ToolBadge} name=${name} state=${state} />`, show(state), html`<${Num} value=${ms && ms * 1000} us />`, by ? html`${turn(by) > 0 && `turn ${turn(by)} `}<${StreamLink} id=${by} />` : "–"]))}</li>`)}</ol>`;
}

export function Conversation({ place: { ids: [id] } }) {
	const [found, error] = useRead(() => getJson(streamPath(id, "/conversation")));
	return html`<${Page} title=Conversation error=${error} ready=${found}>${found && html`<${Turns} streams=${found.streams} />`}<//>`;
}

export function Run({ place: { ids: [id] } }) {
	const { rows, error } = useRows(`run:${id}`), streams = useMemo(() => (rows || []).toSorted((a, b) => a.turn - b.turn || a.created - b.created), [rows]);
	return html`<${Page} title=${`Run ${show(id)}`} error=${error} ready=${rows}>${streams.length ? html`<${Turns} streams=${streams} runs />` : html`<p>No turn found.</p>`}<//>`;
}
