// One stream.
import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { ADDED, clock, describe, duration, EDITED, embedded, getJson, line, lowerBound, number, pretty, readFeed, show, streamPath, summaryOf, Tape, textAt, WITHHELD } from "./model.js";
import { address, announce, change, copy, EndingBadge, go, Grid, Icon, Num, Page, StreamLink, table, Tabs, Text, ToolBadge, toneOf, useKeys, useRead } from "./parts.js";
import { lanesOf, Timeline } from "./timeline.js";
import { copies } from "./copy.js";
import { markForDiff } from "./list.js";

const VIEWS = [["upstream", "Upstream"], ["client", "Client"], ["both", "Both"], ["events", "Events"], ["raw", "Raw"]];
const SPEEDS = [1, 4, 16], GAP_MOST_US = 2e6, RETRY_MS = 1000, REDRAW_MS = 60;

/** A stream's feed and summary. Its repairs are read once it has ended. */
function useStream(id) {
	const [, redraw] = useState(0), tape = useMemo(() => new Tape(), []), [about, setAbout] = useState({ summary: embedded?.summary });
	useEffect(() => {
		const stop = new AbortController(), { signal } = stop;
		let timer = 0;
		const changed = () => (timer ||= setTimeout(() => ((timer = 0), redraw((old) => old + 1)), REDRAW_MS + tape.count / 400));
		const summarise = async () => setAbout({ summary: await getJson(streamPath(id), signal) });
		const read = async () => {
			if (embedded) {
				for (const each of embedded.feed) tape.take(JSON.stringify(each));
				tape.withRepairs = true;
				return changed();
			}
			const first = summarise();
			first.catch((error) => signal.aborted || setAbout({ error }));
			for (let done = false; !done;) {
				done = await readFeed(id, tape, false, changed, signal).then(() => true, ({ status }) => status || signal.aborted);
				if (!done) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
			}
			await first;
			await summarise();
			await readFeed(id, tape, true, changed, signal);
		};
		read().catch(() => {});
		return () => (stop.abort(), clearTimeout(timer));
	}, []);
	return { tape, ...about };
}

/** The record to begin with: what broke the stream, the first change of a call, or the first content. */
function telling({ ended, toolEvents, channels }) {
	return ended && ended.ending !== "completed" ? ended.i : (toolEvents[0] ?? [...channels.values()][0]?.at[0] ?? 0);
}

function listed(tape, range, lane) {
	const [from, to] = range || [0, tape.count - 1], of = lane && lanesOf(tape).find(({ name }) => name === lane)?.at;
	return of ? of.filter((i) => i >= from && i <= to) : Array.from({ length: Math.max(0, to - from + 1) }, (_, k) => from + k);
}

export function Stream({ place }) {
	const [id] = place.ids, { n = "", range = n.includes("-") ? n : "", at: moment, lane, view = "both" } = place.state, { tape, summary, error } = useStream(id), [words] = useRead(() => (embedded ? Promise.resolve(embedded.explain) : getJson("explain")));
	const [playing, setPlaying] = useState(0), [head, setHead] = useState(null), controls = useRef(null), menu = useRef(null);
	const live = Boolean(summary?.live && !tape.ended), [from, to] = range.split("-").map(Number), bounds = range ? [tape.indexOf(from), tape.indexOf(to + 1) - 1] : null, picked = n === range ? "" : n;
	const following = live && head === null && !n && !moment, shown = useMemo(() => listed(tape, bounds, lane), [tape.version, range, lane]);
	const time = head ?? (moment ? moment * 1e6 : null), at = Math.min(tape.count - 1, time !== null ? tape.at(time) : picked ? tape.indexOf(Number(picked)) : bounds ? bounds[0] : live ? Infinity : telling(tape)), playhead = time ?? tape.t[at] ?? 0;

	const move = (t, state) => {
		setPlaying(0);
		setHead(null);
		controls.current.show(t);
		change(place, { at: null, n: null, range, ...state });
	};
	const seek = (t) => move(t, { at: (t / 1e6).toFixed(6) }), select = (i) => move(tape.t[i], { n: String(tape.n[i]) });
	const jump = (list, way) => {
		const i = way > 0 ? list.find((each) => each > at) : list.findLast((each) => each < at);
		if (i !== undefined) select(i);
	};
	const play = (speed = 1) => {
		if (playing) return seek(playhead);
		setHead(playhead >= tape.duration ? 0 : playhead);
		setPlaying(speed);
	};
	usePlayback(tape, playing, setHead, () => setPlaying(0));
	const next = () => jump(shown, 1), before = () => jump(shown, -1), all = () => change(place, { n: picked, range: null, lane: null }), gaps = tape.gaps().map(({ i }) => i);
	useKeys({
		j: next, k: before, ArrowDown: next, ArrowUp: before, ArrowRight: next, ArrowLeft: before, "[": () => jump(gaps, -1), "]": () => jump(gaps, 1), t: () => jump(tape.toolEvents, 1), r: () => jump(tape.repaired, 1),
		e: () => tape.ended && select(tape.ended.i), " ": () => play(), "+": () => controls.current.zoom(0.5), "-": () => controls.current.zoom(2), 0: () => controls.current.fit(), c: () => menu.current.showPopover(),
		v: () => change(place, { view: VIEWS.at((VIEWS.findIndex(([name]) => name === view) + 1) % VIEWS.length)[0] }), d: () => embedded || markForDiff(id), l: () => (setHead(null), change(place, { n: null, at: null })),
		Escape: () => (range || lane ? all() : embedded || go(address(""))),
	});
	useEffect(() => void (summary?.live && announce(live ? `${tape.count} records.` : `The stream ended: ${tape.ended.ending}.`)), [tape.count]);
	if (error || !(tape.count || tape.damage.length)) return html`<${Page} title=Stream error=${error} />`;
	const onRange = (a, b) => {
		const first = lowerBound(tape.t, a), last = tape.at(b);
		if (last >= first) change(place, { n: `${tape.n[first]}-${tape.n[last]}`, at: null, range: null }, false);
	};
	return html`<main class=page><${Header} ...${{ id, tape, summary, words, live, at, menu, play, playing }} />
		<section class=panel><${Timeline} ...${{ tape, playhead, controls, onRange, lane, range: bounds?.map((i) => tape.t[i]) }} onPick=${(t) => select(tape.at(t))} onLane=${(name) => change(place, { lane: lane === name ? null : name }, false)} />
			<${Player} ...${{ tape, at, playhead, playing, setPlaying, play, seek }} /></section>
		<section class=split><${Records} ...${{ tape, shown, at, select, following, all: (range || lane) && all }} /><${Detail} ...${{ tape, at, view, words }} onView=${(view) => change(place, { view })} /></section>
		<${Result} ...${{ place, tape, summary, words, select, at: time !== null ? at : tape.count - 1 }} /></main>`;
}

/** Move the playhead; no silence takes longer than two seconds. */
function usePlayback(tape, speed, setHead, stop) {
	useEffect(() => {
		let last = performance.now(), frame = 0;
		const tick = (now) => {
			const passed = Math.max(0, now - last) * 1000 * speed;
			last = now;
			setHead((old) => {
				const i = tape.at(old), silence = (tape.t[i + 1] ?? tape.duration) - tape.t[i], next = old + passed * Math.max(1, silence / (GAP_MOST_US * speed));
				if (next >= tape.duration) setTimeout(stop);
				return Math.min(next, tape.duration);
			});
			frame = requestAnimationFrame(tick);
		};
		if (speed) frame = requestAnimationFrame(tick);
		return () => cancelAnimationFrame(frame);
	}, [speed]);
}

function isLost(state) {
	return state === "dropped" || state === "malformed";
}

function Header({ id, tape, summary, words, live, at, menu, play, playing }) {
	const { timing = {}, model, dialect, created, route, error, repairs = {}, attempts, records, damage = [] } = summary || {}, usage = summary?.usage || {}, { ending, cause } = tape.ended || {}, { method = "", path = "" } = tape.request?.keys || {};
	const lost = [...tape.calls.values()].filter(({ moves }) => isLost(moves.at(-1)?.state)).map(({ name }) => html`<code>${line(name, 60)}</code> `), why = cause !== ending && ending !== "completed", about = ending !== "completed" && words?.endings?.[ending];
	const faults = damage.length ? damage : tape.damage, facts = [
		["First content", "first_content_us", timing.first_content_us, true], ["Duration", "duration_us", live ? tape.duration : timing.duration_us, true], ["Longest silence", "longest_silence_us", timing.longest_silence_us, true],
		["Attempts", "attempts", live ? tape.attempts.length : attempts?.length], ["Input tokens", "input_tokens", usage.prompt_tokens ?? usage.input_tokens], ["Output tokens", "output_tokens", usage.completion_tokens ?? usage.output_tokens],
		["Records", "records", live ? tape.count : records], ["Repairs", "repairs", Object.values(repairs).reduce((sum, each) => sum + each, 0)],
	];
	return html`<header class=head><div class=bar><${EndingBadge} row=${{ live, ending }} /><h1>${why && line(cause)}${lost[0] && html` inside ${lost}`}${(why || lost[0]) && html`<small> · </small>`}${line(model || path, 80)}</h1>
			<${CopyMenu} ...${{ id, tape, at, summary, menu }} /><button onClick=${() => play()}><${Icon} name=${playing ? "pause" : "play"} />${playing ? "Pause" : "Replay"}</button>${!embedded && html`<button onClick=${() => markForDiff(id)}>Diff…</button>`}</div>
		<p><small><code>${show(id)}</code>${created && ` · ${clock(created)}`} · ${line(`${method} ${path}`)}${dialect && ` · ${line(dialect)}`}${route && ` · route ${line(route)}`}${!embedded && dialect && html` · <a href=${address("c", [id])}>conversation</a>`}</small></p>
		${about && html`<p class=${`notice ${toneOf(ending)}`}>${about.sentence} ${about.what_the_client_got}${lost.length > 0 && html` Not run: ${lost}`}</p>`}${error && html`<p class="notice bad">Upstream: ${line(error.message, 500)} <code>${line(error.code)}</code></p>`}
		${faults.length > 0 && html`<p class="notice bad">The tape is damaged: ${faults.map((each) => `${show(each.reason)}${each.at === null ? "" : ` at byte ${each.at}`}`).join("; ")}.</p>`}
		<dl class=facts>${facts.map(([title, name, value, us]) => html`<div><dt>${title}</dt><dd><${Num} ...${{ name, value, us }} /></dd></div>`)}</dl></header>`;
}

function CopyMenu({ id, tape, at, summary, menu }) {
	const [open, setOpen] = useState(false), items = open ? copies(id, tape, at, summary) : [];
	return html`<button popovertarget=copies><${Icon} name=copy />Copy</button><div id=copies popover=auto ref=${menu} onToggle=${({ newState }) => setOpen(newState === "open")}>
		${items.map(([title, make]) => html`<button onClick=${async () => (menu.current.hidePopover(), copy(await make()))}>${title}</button>`)}</div>`;
}

function Player({ tape, at, playhead, playing, setPlaying, play, seek }) {
	const text = [...tape.channels.values()].reduce((sum, each) => sum + textAt(each, at).length, 0);
	const onKeyDown = (event) => {
		const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
		if (!step) return;
		event.preventDefault();
		seek(tape.t[Math.max(0, Math.min(tape.count - 1, at + step))]);
	};
	return html`<div class="bar player"><button class=small aria-label=${playing ? "Pause" : "Play"} onClick=${() => play()}><${Icon} name=${playing ? "pause" : "play"} /></button>${SPEEDS.map((speed) => html`<button class=small aria-pressed=${playing === speed} onClick=${() => (playing ? setPlaying(speed) : play(speed))}>${speed}×</button>`)}
		<input type=range aria-label=Time min=0 max=${tape.duration} value=${Math.round(playhead)} aria-valuetext=${`${duration(Math.round(playhead))} of ${duration(tape.duration)}, record ${tape.n[at]}, ${text} characters`} onInput=${(event) => seek(Number(event.target.value))} onKeyDown=${onKeyDown} /><code>${duration(Math.round(playhead))}</code></div>`;
}

const RECORD_COLUMNS = [["n", "#"], ["t", "Time"], ["gap", "+Gap"], ["kind", "Kind"], ["what", "What"], ["diff", "±", "~ changed, − withheld, + added"]];
const SIGNS = [[EDITED, "~", "changed"], [WITHHELD, "−", "withheld"], [ADDED, "+", "added"]];

function Tag({ told: [tag, what] }) {
	return html`${tag && html`<span class=${`tag ${tag}`}>${tag}</span>`}${what}`;
}

function Records({ tape, shown, at, select, following, all }) {
	const gaps = useMemo(() => new Set(tape.gaps().map(({ i }) => i)), [tape.version]), k = lowerBound(shown, at);
	const cells = (k) => {
		const i = shown[k], gap = i ? tape.t[i] - tape.t[i - 1] : 0;
		return [tape.n[i], duration(tape.t[i]), gap > 0 && html`<small class=${gaps.has(i) && "warn"}>+${duration(gap)}</small>`, show(tape.kind[i]), html`<${Tag} told=${summaryOf(tape.record(i))} />`,
			SIGNS.map(([bit, sign, title]) => (tape.bits[i] & +bit) > 0 && html`<b class=warn title=${title}>${sign}</b>`)];
	};
	return html`<div class="panel log"><div class="bar caption"><h2>Records</h2><small>${all && `${number(shown.length)} of `}${number(tape.count)}</small>${all && html`<button class=small onClick=${all}>Show all</button>`}</div>
		<${Grid} id=records label=Records columns=${RECORD_COLUMNS} count=${shown.length} rowHeight=${24} cells=${cells} keyOf=${(k) => shown[k]} rowClass=${(k) => (gaps.has(shown[k]) ? "aftergap" : "")} selected=${shown[k] === at ? k : -1} onSelect=${(k) => select(shown[k])} follow=${following} /></div>`;
}

function Detail({ tape, at, view, onView, words }) {
	const record = useMemo(() => (tape.count ? tape.record(at) : {}), [at, tape.version]), { events = [], moves = [], out, repairs = [], marks = {}, ...own } = record, came = record.in ?? (record.in64 && atob(record.in64)), sent = out === 1 ? came : out?.join("");
	const side = (title, text, ranges) => html`<div><h3>${title}</h3>${text === undefined ? html`<p><small>Nothing with this record.</small></p>` : html`<${Text} text=${text} ranges=${ranges} />`}</div>`, upstream = side("Upstream", came, marks.in), client = side("Client", sent, marks.out);
	const told = [...events.map(describe), ...moves.map(({ name, id, state }) => ["state", line(`${name} ${id}: ${state}`)])];
	const views = { upstream, client, both: html`${upstream}${client}`, raw: html`<${Text} text=${JSON.stringify(own, null, 2)} />`, events: html`<ul>${told.map((each) => html`<li><${Tag} told=${each} /></li>`)}</ul>${!told.length && "No event."}` };
	return html`<div class="panel log"><${Tabs} label="View of the record" panel=view tabs=${VIEWS} chosen=${view} onChoose=${onView}><small>${record.n} ${show(record.k)} · ${duration(record.t)}${record.bytes && ` · ${number(record.bytes)} bytes`}</small><//>
		<div id=view role=tabpanel aria-labelledby=${`view-${view}`} tabIndex=0 class=${view}>${views[view] || views.both}${record.more && html`<${More} bytes=${record.more} />`}${repairs.length > 0 && html`<div class=repairs><h3>Repairs</h3>${repairs.map((each) => html`<${Repair} ...${{ each, words }} />`)}</div>`}</div></div>`;
}

function More({ bytes }) {
	return html`<p><small>${number(bytes)} more bytes are on the tape.</small></p>`;
}

function Repair({ each: { repair, path, key, about, before = "–", after = "–" }, words }) {
	return html`<details><summary><span class="tag warn">${show(repair)}</span><code>${path && line([...path, key].join("."), 80)}</code></summary><p>${show(about || words?.repairs?.[repair])}</p>
		<dl class=change><dt>before</dt><dd><code>${line(before, 300)}</code></dd><dt>after</dt><dd><code>${line(after, 300)}</code></dd></dl></details>`;
}

function Result({ place, tape, summary, words, at, select }) {
	const calls = [...tape.calls.values()], gaps = tape.gaps(), { tools = [], usage } = summary || {}, repairs = Object.entries(summary?.repairs || {}), { request } = tape, answers = [...tape.channels.values()], tab = place.state.tab || "answer";
	const tabs = [["answer", "Answer"], ["lanes", "Lanes"], ["gaps", `Gaps ${gaps.length || ""}`], ["repairs", `Repairs ${repairs.length || ""}`], ["request", "Request"], ["response", "Response"]];
	const when = (i) => (i === undefined ? "–" : html`<button class=link onClick=${() => select(i)}>${duration(tape.t[i])}</button>`), mono = (text) => html`<code>${line(text, 2000)}</code>`;
	const part = (kind, title, text, lost) => html`<div class=${`answer ${kind}`}><h3>${title}</h3><${Text} text=${text} />${lost && html`<small class=bad>✂ cut here</small>`}</div>`;
	const headers = (keys) => table(["Header", "Value"], (keys?.headers || []).map((each) => each.map(mono)), "No header was recorded.");
	const panels = {
		answer: () => html`${!answers.length && !calls.length && html`<p><small>${tape.head ? "No text and no tool call." : "No answer."}</small></p>`}${answers.map((each) => part(each.name, `${each.name} ${each.choice || ""}`, textAt(each, at)))}
			${calls.map((call) => {
				const { name, id, moves } = call, state = moves.findLast(({ i }) => i <= at)?.state || "announced";
				return part("call", html`<${ToolBadge} ...${{ name, state }} />${show(state)} · ${mono(id)}`, pretty(textAt(call, at)), isLost(state));
			})}`,
		lanes: () => table(["Lane", "State", "First", "Last", "Lasted", "Records", "Size", "Reason", "Result"], lanesOf(tape).map(({ name, label, at, size, call }) => {
			const { state, reason, answered_by: by, arguments_chars: chars } = (call && tools.find(({ id }) => id === call.id)) || {}, [from, to] = [at[0], at.at(-1)];
			return [line(label || name, 60), show(state ?? "–"), when(from), when(to), from === undefined ? "–" : duration(tape.t[to] - tape.t[from]), number(at.length), call ? html`<${Num} value=${chars ?? call.text.length} name=arguments_chars />` : number(size && at.reduce((sum, i, k) => sum + size(k, i), 0)),
				show(reason ?? "–"), by ? html`<${StreamLink} id=${by} />` : "–"];
		})),
		gaps: () => table(["From", "To", "Length"], gaps.map(({ i, from, to }) => [duration(from), when(i), duration(to - from)]), "No silence of the upstream stands out."),
		repairs: () => table(["Repair", "Times", "Meaning"], repairs.map(([name, times]) => [mono(name), html`<${Num} value=${times} name=${`repair ${name}`} />`, show(words?.repairs?.[name])]), "Nothing was repaired."),
		request: () => html`${headers(request?.keys)}${request?.in ? html`<${Text} text=${request.more ? request.in : pretty(request.in)} />${request.more && html`<${More} bytes=${request.more} />`}` : "No body, or it is not kept."}`,
		response: () => html`${headers(tape.head)}${usage ? html`<${Text} text=${JSON.stringify(usage, null, 2)} />` : "The upstream did not count tokens."}`,
	};
	return html`<section class="panel result"><${Tabs} label=Result panel=result tabs=${tabs} chosen=${tab} onChoose=${(tab) => change(place, { tab })} /><div id=result role=tabpanel aria-labelledby=${`result-${tab}`} tabIndex=0>${(panels[tab] || panels.answer)()}</div></section>`;
}
