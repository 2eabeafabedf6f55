// The timeline: one canvas with lanes.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { duration, line, lowerBound } from "./model.js";
import { stateTone, toneOf, useSize } from "./parts.js";

const AXIS = 20;

/** @returns {any[]} */
export function lanesOf(tape) {
	const by = (sizes) => (_, i) => sizes[i], places = (all) => all.map(({ i }) => i);
	return [
		{ name: "silence", height: 16, draw: drawGaps, at: places(tape.gaps()) },
		{ name: "attempts", height: 20, draw: drawAttempts, at: places(tape.attempts) },
		{ name: "upstream", height: 28, draw: drawBars, at: tape.reads, size: by(tape.size) },
		...[...tape.channels.values()].map(({ name, choice, at, ends }) => ({ name: choice ? `${name} ${choice}` : name, tone: name, height: 22, draw: drawBars, at, size: (k) => ends[k] - (ends[k - 1] ?? 0) })),
		...[...tape.calls.values()].map((call) => ({ name: call.id || call.key, label: call.name, height: 24, draw: drawCall, call, at: [...new Set([...places(call.moves), ...call.at])].sort((a, b) => a - b) })),
		{ name: "client", height: 26, draw: drawClient, at: tape.sent.flatMap((size, i) => (size ? i : [])), size: by(tape.sent) },
	];
}

function drawGaps({ g, x, tape, fill, left, right, bottom }, y) {
	for (const { from, to } of tape.gaps()) {
		const a = x(from), b = x(to), words = duration(to - from), room = Math.min(b, right) - Math.max(a, left) - g.measureText(words).width;
		fill("gap", a, y, b - a, bottom - y);
		g.fillStyle = fill("warn");
		if (room > 8) g.fillText(words, Math.max(a, left) + room / 2, y + 9);
	}
}

function drawAttempts({ g, x, tape, fill }, y) {
	tape.attempts.forEach(({ i, status }, at) => {
		const next = tape.attempts[at + 1], from = x(tape.t[i]), wide = x(next ? tape.t[next.i] : tape.duration) - from;
		fill(next ? "bad" : "ok", from, y + 3, Math.max(2, wide - 2), 14, 0.2);
		g.fillStyle = fill("ink-2");
		if (wide > 52) g.fillText(`${at + 1} · ${status}`, from + 5, y + 10.5);
	});
}

function drawBars({ x, tape, fill, from, to, left, right }, y, { name, tone = name, at, size, height }) {
	const start = lowerBound(at, lowerBound(tape.t, from)), end = lowerBound(at, lowerBound(tape.t, to + 1)), wide = (right - left) / (end - start + 1) > 5 ? 2 : 1.25;
	let most = 16, column = -1, peak = 0;
	for (let k = start; k < end; k++) most = Math.max(most, size(k, at[k]));
	for (let k = start; k <= end; k++) {
		const px = k < end ? Math.round(x(tape.t[at[k]]) * 2) / 2 : -2;
		if (px !== column) {
			if (peak) fill(tone, column, y + height - 3 - peak, wide, peak);
			column = px;
			peak = 0;
		}
		if (k < end) peak = Math.max(peak, 2, (Math.log2(1 + size(k, at[k])) / Math.log2(1 + most)) * (height - 7));
	}
}

function drawCall({ g, x, tape, fill }, y, { call, at, height }) {
	const mid = y + height / 2, moves = call.moves.length ? call.moves : [{ i: at[0] ?? 0, state: "announced" }];
	const toneAt = (k) => (moves[k].state === "announced" ? "call" : stateTone(moves[k].state));
	moves.forEach(({ i }, k) => {
		const from = x(tape.t[i]), to = moves[k + 1]?.i ?? (tape.ended && /ok|bad/.test(toneAt(k)) ? i : tape.count - 1);
		fill(toneAt(k), from, mid - 7, Math.max(2, x(tape.t[to]) - from), 14, 0.2);
	});
	let drawn = -9;
	for (const i of call.at) if (x(tape.t[i]) - drawn >= 1) fill("call", (drawn = x(tape.t[i])) - 0.75, mid - 4, 1.5, 8);
	moves.forEach(({ i, state }, k) => {
		const px = x(tape.t[i]), bad = toneAt(k) === "bad";
		g.fillStyle = fill(toneAt(k));
		g.fillText(bad ? `✕ ${state}` : k ? "◆" : "◇", px - 4, mid + 0.5);
	});
}

function drawClient(paint, y, lane) {
	const { g, x, tape, fill } = paint, kept = (i) => tape.kind[i] === "keepalive", high = lane.height - 8;
	g.strokeStyle = fill("ink-3");
	g.lineWidth = 1;
	for (const [from, to] of tape.held()) {
		g.beginPath();
		for (let px = x(from); px < x(to); px += 5) g.moveTo(px, y + 4 + high), g.lineTo(Math.min(px + 5, x(to)), y + 4);
		g.stroke();
	}
	drawBars(paint, y, { ...lane, at: lane.at.filter((i) => !kept(i)), size: (_, i) => tape.sent[i] });
	for (const i of lane.at.filter(kept)) fill("ink-3", x(tape.t[i]) - 1.5, y + lane.height / 2, 3, 3);
}

function drawAxis({ g, x, fill, from, to, left, right, bottom }) {
	const rough = (to - from) / Math.max(2, (right - left) / 110), power = 10 ** Math.floor(Math.log10(Math.max(1, rough))), step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
	for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
		fill("line", Math.round(x(t)), AXIS - 4, 1, bottom - AXIS + 4);
		g.fillStyle = fill("ink-3");
		g.fillText(t ? duration(Math.round(t)).replace(/\.?0+(?= s)/, "") : "0", Math.round(x(t)) + 4, AXIS / 2);
	}
}

function drawCut({ g, x, tape: { ended, t }, fill, bottom }) {
	if (!ended || ended.ending === "completed") return;
	const px = x(t[ended.i]), tone = toneOf(ended.ending), words = `✂ ${line(ended.cause, 30)}`, wide = g.measureText(words).width + 10;
	for (let y = AXIS; y < bottom; y += 7) fill(tone, px - 0.75, y, 1.5, 4);
	fill(tone, px - wide / 2, 2, wide, 16);
	g.fillStyle = fill("paper");
	g.fillText(words, px - wide / 2 + 5, 10.5);
}

function brush(canvas, g) {
	const probe = canvas.parentNode.appendChild(document.createElement("span")), known = {};
	return (name, x, y, wide, high, alpha = 1) => {
		if (!known[name]) {
			probe.style.color = `var(--${name})`;
			known[name] = getComputedStyle(probe).color;
		}
		g.fillStyle = known[name];
		g.globalAlpha = alpha;
		if (wide) g.fillRect(x, y, wide, high);
		g.globalAlpha = 1;
		return known[name];
	};
}

export function Timeline({ tape, playhead, range, lane: chosen, onPick, onRange, onLane, controls }) {
	const box = useRef(null), canvas = useRef(null), pen = useRef(null), [width] = useSize(box), [view, setView] = useState(null), [drag, setDrag] = useState(null), [, setScheme] = useState(null);
	const left = width < 480 ? 70 : 108, right = Math.max(left + 10, width - 76), full = Math.max(1, tape.duration), [from, to] = view || [0, full], span = to - from;
	const lanes = useMemo(() => lanesOf(tape).filter(({ at }, k) => at.length > (k === 1 ? 1 : 0)), [tape.version]), height = AXIS + lanes.reduce((sum, lane) => sum + lane.height, 6);
	const x = (t) => left + ((t - from) / span) * (right - left), timeAt = (px) => Math.max(0, Math.min(full, from + ((px - left) / (right - left)) * span));
	const look = (start, wide) => setView(wide >= full ? null : [Math.max(0, Math.min(full - wide, start)), Math.max(wide, Math.min(full, start + wide))]);
	const zoom = (factor, around = playhead) => look(around - (around - from) * factor, Math.max(50, span * factor));
	controls.current = { zoom, fit: () => setView(null), show: (t) => (t < from || t > to) && look(t - span / 2, span) };

	useEffect(() => {
		const media = matchMedia("(prefers-color-scheme: dark)");
		media.onchange = () => ((pen.current = null), setScheme(media.matches));
	}, []);
	useLayoutEffect(() => {
		const node = canvas.current, g = node.getContext("2d"), ratio = devicePixelRatio, bottom = height - 4, fill = (pen.current ??= brush(node, g)), size = [width, height].map((each) => Math.round(each * ratio));
		if (node.width !== size[0] || node.height !== size[1]) [node.width, node.height] = size;
		g.setTransform(ratio, 0, 0, ratio, 0, 0);
		g.clearRect(0, 0, width, height);
		g.font = "11px ui-monospace, Menlo, Consolas, monospace";
		g.textBaseline = "middle";
		const paint = { g, x, fill, left, right, bottom, from, to, tape }, marked = drag || range;
		g.save();
		g.beginPath();
		g.rect(left - 6, 0, width, height);
		g.clip();
		drawAxis(paint);
		if (marked) fill("select", x(marked[0]), AXIS, Math.max(1, x(marked[1]) - x(marked[0])), bottom - AXIS);
		let y = AXIS;
		for (const lane of lanes) {
			if (chosen === lane.name) fill("select", left - 6, y, width, lane.height);
			lane.draw(paint, y, lane);
			fill("line", left, (y += lane.height) - 0.5, width, 0.5);
		}
		drawCut(paint);
		fill("accent", x(playhead) - 0.75, AXIS, 1.5, bottom - AXIS);
		g.restore();
		y = AXIS;
		for (const { name, label, height } of lanes) {
			g.fillStyle = fill(chosen === name ? "accent" : "ink-2");
			g.fillText(line(label || name, Math.floor((left - 18) / 6.7)), 12, y + height / 2 + 0.5);
			y += height;
		}
	});

	const place = (event) => event.clientX - canvas.current.getBoundingClientRect().left;
	const down = (event) => {
		const node = canvas.current, start = place(event);
		let y = event.clientY - node.getBoundingClientRect().top - AXIS, range = null;
		if (event.button) return;
		if (start < left - 6) return onLane(lanes.find((each) => (y -= each.height) < 0)?.name);
		node.setPointerCapture(event.pointerId);
		node.onpointermove = (next) => {
			if (range || Math.abs(place(next) - start) > 4) setDrag((range = [timeAt(start), timeAt(place(next))].sort((a, b) => a - b)));
		};
		node.onpointerup = () => {
			node.onpointermove = node.onpointerup = null;
			setDrag(null);
			if (range) onRange(...range);
			else onPick(timeAt(start));
		};
	};
	useEffect(() => {
		const node = canvas.current;
		node.onwheel = (event) => {
			event.preventDefault();
			zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(place(event)));
		};
	});
	return html`<div class=timeline ref=${box}><canvas ref=${canvas} style=${{ height: `${height}px` }} role=img aria-label=${`Timeline of ${duration(tape.duration)}. The table of lanes holds the same.`} onPointerDown=${down} onDblClick=${() => setView(null)}></canvas></div>`;
}
