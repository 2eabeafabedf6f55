// The frame around the pages, and the help.
import { html, render, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { embedded, takeToken } from "./model.js";
import { address, go, Icon, lettersOff, Page, switchLetters, useKeys, usePlace } from "./parts.js";
import { Now, Streams } from "./list.js";
import { Stream } from "./stream.js";
import { Conversation, Diff, Run } from "./compare.js";

const PAGES = { "": ["Streams", Streams], s: ["Stream", Stream], c: ["Conversation", Conversation], r: ["Run", Run], diff: ["Comparison", Diff], now: ["Now", Now] };

const HELP = `j k ↑ ↓: rows; Enter: open; /: filter; [ ]: previous, next gap; t: next tool event; r: next repair; e: the ending; Space: replay, pause; + - 0: zoom in, zoom out, fit;
v: next view of a record; c: copy; d: compare; n: next difference; l: follow, only live; Esc: back`;

function Help({ onClose }) {
	const box = useRef(null), [off, setOff] = useState(lettersOff());
	useEffect(() => box.current.showModal(), []);
	return html`<dialog ref=${box} aria-labelledby=help onClose=${onClose}><h2 id=help>Keyboard</h2><dl class=keys>${HELP.split(/;\s/).map((each) => html`<div><dt><kbd>${each.split(": ")[0]}</kbd></dt><dd>${each.split(": ")[1]}</dd></div>`)}</dl>
		<form method=dialog><label><input type=checkbox checked=${!off} onChange=${() => (switchLetters(!off), setOff(!off))} />single letters are commands</label><button autofocus>Close</button></form></dialog>`;
}

function App() {
	const place = usePlace(), { page, ids } = place, [help, setHelp] = useState(false), [title, Shown] = PAGES[page] || ["Not found", () => html`<${Page} title="Not found" error=${{ status: 404 }} />`];
	useKeys({ "?": () => setHelp(true), Escape: () => page && !embedded && go(address("")) });
	useEffect(() => void (document.title = `${title} · Wiretape`), [place]);
	return html`<header class=top><strong><${Icon} name=tape />Wiretape</strong>${!embedded && html`<nav aria-label=Pages>${["", "now"].map((each) => html`<a href=${address(each)} aria-current=${page === each ? "page" : undefined}>${PAGES[each][0]}</a>`)}</nav>`}
		<button class=small onClick=${() => setHelp(true)}>Keys <kbd>?</kbd></button></header><${Shown} key=${[page, ...ids].join(" ")} place=${place} />${help && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

if (!embedded) takeToken();
render(html`<${App} />`, document.getElementById("app"));
