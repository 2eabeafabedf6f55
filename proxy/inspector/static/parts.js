// Parts that every page uses.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { duration, embedded, line, number, show } from "./model.js";

const ROOT = "/wiretape/ui/", MOVED = "wiretape:place";

export function readPlace() {
	const state = Object.fromEntries([...new URLSearchParams(location.search), ...new URLSearchParams(location.hash.slice(1))]);
	if (embedded) return { page: "s", ids: [embedded.summary.id], state };
	const [page = "", ...ids] = location.pathname.slice(ROOT.length).split("/").map(decodeURIComponent);
	return { page, ids, state };
}

/** The address of a page. Only the record is in the fragment. */
export function address(page, ids = [], state = {}) {
	const query = new URLSearchParams(), hash = new URLSearchParams();
	for (const [key, value] of Object.entries(state)) if (value) (embedded || key === "n" ? hash : query).set(key, value);
	return (embedded ? "" : ROOT + [page, ...ids].map(encodeURIComponent).join("/")) + (query.size ? `?${query}` : "") + (hash.size || embedded ? `#${hash}` : "");
}

export function go(to, quietly) {
	history[quietly ? "replaceState" : "pushState"](null, "", to);
	dispatchEvent(new Event(MOVED));
}

export function change({ page, ids }, changes, quietly = true) {
	go(address(page, ids, { ...readPlace().state, ...changes }), quietly);
}

export function usePlace() {
	const [place, setPlace] = useState(readPlace());
	useEffect(() => {
		for (const name of ["popstate", "hashchange", MOVED]) addEventListener(name, () => setPlace(readPlace()));
	}, []);
	return place;
}

addEventListener("click", (event) => {
	const link = Object(event.target).closest("a[href]");
	if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
	event.preventDefault();
	go(link.href);
});

export function StreamLink({ id }) {
	return html`<a href=${address("s", [id])}><code>${show(id.slice(0, 10))}</code></a>`;
}

const KEYMAPS = [], LETTERS = "wiretape.letters";

export function lettersOff() {
	return localStorage.getItem(LETTERS) === "off";
}

export function switchLetters(off) {
	localStorage.setItem(LETTERS, off ? "off" : "on");
}

export function useKeys(keymap) {
	const held = useRef(keymap);
	held.current = keymap;
	useEffect(() => {
		KEYMAPS.unshift(held);
		return () => void KEYMAPS.splice(KEYMAPS.indexOf(held), 1);
	}, []);
}

addEventListener("keydown", (event) => {
	const { key, target } = event, within = (selector) => Object(target).closest(selector);
	if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || within("input, select, dialog, [popover]")) return;
	if ((key === " " && within("button, a, summary")) || (key.startsWith("Arrow") && within("[role=tablist], .scroll")) || (/^[^ ]$/.test(key) && lettersOff())) return;
	const act = KEYMAPS.find(({ current }) => current[key])?.current[key];
	if (!act) return;
	event.preventDefault();
	act();
});

export function Num({ value, us, name }) {
	if (value === null || value === undefined) return html`<small data-name=${name}>–</small>`;
	return html`<data value=${String(value)} data-name=${name}>${us ? duration(value) : number(value)}</data>`;
}

const PATHS = {
	ok: "M3 8.5l3.2 3.2L13 4.8", bad: "M4 4l8 8M12 4l-8 8", warn: "M8 2.5L14.5 13.5h-13zM8 6.5v3.2M8 11.6v.4", live: "M8 5.2a2.8 2.8 0 100 5.6 2.8 2.8 0 000-5.6z",
	copy: "M5.5 5.5h8v8h-8zM3 10.5V2.5h8", play: "M4.5 3v10l8-5z", pause: "M5 3v10M11 3v10",
	tape: "M1.5 3.5h13v9h-13zM5 6.2a1.8 1.8 0 100 3.6 1.8 1.8 0 000-3.6zM11 6.2a1.8 1.8 0 100 3.6 1.8 1.8 0 000-3.6zM5 9.8h6",
};

export function Icon({ name }) {
	return html`<svg class=icon viewBox="0 0 16 16" aria-hidden=true><path d=${PATHS[name]} /></svg>`;
}

const TONES = { completed: "ok", client_gone: "warn", shutdown: "warn", limit: "warn", stalled: "warn", "": "warn" };

export function toneOf(ending) {
	return TONES[ending ?? ""] || "bad";
}

export function EndingBadge({ row: { live, ending } }) {
	const tone = live ? "live" : toneOf(ending);
	return html`<span class=${`badge ${tone}`}><${Icon} name=${tone} />${live ? "live" : show(ending || "no end")}</span>`;
}

const STATES = { completed: ["ok", "✓"], running: ["info", "▸"], ready: ["info", "●"], announced: ["faint", "◇"] };

export function stateTone(state) {
	return (STATES[state] || ["bad"])[0];
}

export function ToolBadge({ name, state }) {
	return html`<span class=${`tool ${stateTone(state)}`}><code>${line(name, 40)}</code> <span aria-hidden=true>${STATES[state]?.[1] || "✕"}</span><span class=hidden> ${show(state)}</span></span> `;
}

export function Tokens({ row }) {
	return html`<${Num} value=${row.input_tokens} /><small> → </small><${Num} value=${row.output_tokens} />`;
}

const SHOWN_CHARS = 20_000;

/** Foreign text; `ranges` of it are marked. Of a long one the end, since laying out a megabyte takes seconds. */
export function Text({ text, ranges = [] }) {
	const [all, setAll] = useState(false), parts = [];
	if (text.length > SHOWN_CHARS && !all) return html`<button class=small onClick=${() => setAll(true)}>Show all ${number(text.length)} characters</button><pre>… ${show(text.slice(-SHOWN_CHARS))}</pre>`;
	let end = 0;
	for (const [from, to] of ranges) {
		parts.push(show(text.slice(end, from)), html`<mark>${show(text.slice(from, to))}</mark>`);
		end = to;
	}
	return html`<pre>${parts}${show(text.slice(end))}</pre>`;
}

export function table(heads, rows, none) {
	if (!rows.length) return html`<p><small>${none}</small></p>`;
	return html`<div class=scroll tabIndex=0 role=group aria-label=${heads.join(", ")}><table><thead><tr>${heads.map((each) => html`<th scope=col>${each}</th>`)}</tr></thead>
		<tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

export function Failure({ error: { status, message } }) {
	return html`<p class="notice bad" role=alert>${status ? show(message) : "The server does not answer."}${status === 401 && " `wiretape ui` prints the address with the token."}</p>`;
}

export function Page({ title, error, ready, children }) {
	return html`<main class=page><h1>${title}</h1>${error && html`<${Failure} error=${error} />`}${ready ? children : !error && html`<p role=status>Reading…</p>`}</main>`;
}

export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
	} catch { // no permission, or not a secure context
		const area = document.body.appendChild(document.createElement("textarea"));
		area.value = text;
		area.select();
		document.execCommand("copy");
		area.remove();
	}
	announce("Copied.", true);
}

export function CopyButton({ text }) {
	return html`<button class=small onClick=${() => copy(text)}><${Icon} name=copy />Copy</button>`;
}

const QUIET_MS = 5000;
let announced = -QUIET_MS, timer = 0;

export function announce(text, now) {
	clearTimeout(timer);
	timer = setTimeout(() => {
		announced = performance.now();
		const node = document.getElementById("announcements");
		node.textContent = show(text);
		node.className = now ? "" : "hidden";
		if (now) timer = setTimeout(() => (node.className = "hidden"), QUIET_MS);
	}, now ? 0 : announced + QUIET_MS - performance.now());
}

export function useSize(ref) {
	const [size, setSize] = useState("0 0");
	useLayoutEffect(() => {
		const measure = () => setSize(`${ref.current.clientWidth} ${ref.current.clientHeight}`);
		const observer = new ResizeObserver(measure);
		measure();
		observer.observe(ref.current);
		return () => observer.disconnect();
	}, []);
	return size.split(" ").map(Number);
}

const OVERSCAN = 6, HEAD_PX = 26;

/** A grid of which only the visible rows are elements. */
export function Grid({ id, label, columns, count, rowHeight, cells, keyOf, rowClass, selected, onSelect, onOpen, follow }) {
	const box = useRef(null), [, height] = useSize(box), [top, setTop] = useState(0), shown = useRef("");
	const first = Math.max(0, Math.floor(top / rowHeight) - OVERSCAN), last = Math.min(count, Math.ceil((top + height) / rowHeight) + OVERSCAN);
	useLayoutEffect(() => {
		const node = box.current, at = selected * rowHeight, room = height - rowHeight - HEAD_PX, key = `${selected} ${height}`;
		if (follow) node.scrollTop = count * rowHeight;
		else if (selected >= 0 && height && shown.current !== key) { // reading scrollTop lays the page out
			const away = at - node.scrollTop;
			shown.current = key;
			if (away < 0 || away > room) node.scrollTop = Math.abs(away) > 2 * room ? at - room / 2 : away < 0 ? at : at - room;
		}
	});
	const onKeyDown = (event) => {
		const page = Math.max(1, Math.floor(height / rowHeight) - 2);
		const to = { ArrowDown: selected + 1, ArrowUp: selected - 1, PageDown: selected + page, PageUp: selected - page, Home: 0, End: count - 1 }[event.key];
		if (event.key === "Enter" && onOpen) onOpen(selected);
		else if (to !== undefined) onSelect(Math.max(0, Math.min(count - 1, to)));
		else return;
		event.preventDefault();
	};
	const row = (at) => {
		const values = cells(at);
		return html`<div key=${keyOf(at)} id=${`${id}-${at}`} role=row aria-rowindex=${at + 2} aria-selected=${at === selected} class=${`row ${rowClass(at)}`} style=${{ transform: `translateY(${at * rowHeight}px)`, height: `${rowHeight}px` }}
			onClick=${() => (onOpen || onSelect)(at)}>${columns.map(([name], c) => html`<div role=gridcell class=${`cell ${name}`}>${values[c]}</div>`)}</div>`;
	};
	return html`<div class=${`grid ${id}`} id=${id} ref=${box} role=grid tabIndex=0 aria-label=${label} aria-rowcount=${count + 1}
		aria-activedescendant=${selected >= first && selected < last ? `${id}-${selected}` : undefined} onKeyDown=${onKeyDown} onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
		<div role=rowgroup class=header><div role=row aria-rowindex=1 class=row>${columns.map(([name, title, about]) => html`<div role=columnheader class=${`cell ${name}`} title=${about}>${title}</div>`)}</div></div>
		<div role=rowgroup class=rows style=${{ height: `${count * rowHeight}px` }}>${Array.from({ length: Math.max(0, last - first) }, (_, k) => row(first + k))}</div></div>`;
}

export function Tabs({ label, tabs, chosen, onChoose, children, panel }) {
	const onKeyDown = (event) => {
		const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		if (!step) return;
		event.preventDefault();
		const [name] = tabs.at((tabs.findIndex(([each]) => each === chosen) + step) % tabs.length);
		onChoose(name);
		document.getElementById(`${panel}-${name}`).focus();
	};
	return html`<div class=tabs><div role=tablist aria-label=${label} onKeyDown=${onKeyDown}>${tabs.map(([name, title]) => html`<button role=tab id=${`${panel}-${name}`} aria-selected=${name === chosen} aria-controls=${panel}
		tabIndex=${name === chosen ? 0 : -1} onClick=${() => onChoose(name)}>${title}</button>`)}</div>${children}</div>`;
}

export function useRead(read) {
	const [state, set] = useState([null, null]);
	useEffect(() => void read().then((got) => set([got, null]), (error) => set([null, error])), []);
	return state;
}
