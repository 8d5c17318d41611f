"""The colours of the explorer's page, by day and by night, and what Tailwind's classes do not say."""

MAX_BITS = 16  # of surprisal, for the full colour

CSS = """
:root {
  --page: #f6f7f9; --panel: #ffffff; --line: #e2e8f0; --text: #0f172a; --quiet: #526075;
  --bar: rgb(37 99 235 / 18%); --hover: rgb(37 99 235 / 12%); --surprise: 234 88 12; --note: #9a3412;
}
body.body--dark {
  --page: #0b1120; --panel: #151e30; --line: #2a374d; --text: #e8edf5; --quiet: #9fb0c7;
  --bar: rgb(96 165 250 / 30%); --hover: rgb(96 165 250 / 20%); --note: #fdba74;
}
html { color-scheme: light; overflow-wrap: anywhere; }
html:has(body.body--dark) { color-scheme: dark; }
body, body.body--dark { background: var(--page); color: var(--text); }
.nicegui-content { padding: 0; align-items: center; }
.frame { width: 100%; max-width: 76rem; padding: 1rem; gap: 1rem; }
.panel {
  width: 100%; padding: 1rem; gap: .75rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: .75rem; display: flex; flex-direction: column;
}
h1 { font-size: 1.5rem; line-height: 1.2; font-weight: 600; letter-spacing: -.01em; margin: 0; }
h2 { font-size: 1.05rem; line-height: 1.3; font-weight: 600; margin: 0; }
.quiet, .body--dark .q-field__label { color: var(--quiet); }
.note { color: var(--note); }
button.plain {
  all: unset; box-sizing: border-box; cursor: pointer; border-radius: .25rem; padding: 0 .25rem;
}
button.plain:hover { box-shadow: inset 0 0 0 99px var(--hover); }
button.plain:focus-visible { outline: 2px solid var(--q-primary); outline-offset: 1px; }
.cards { width: 100%; display: flex; flex-wrap: wrap; gap: .75rem; }
.cards > * { flex: 1 1 13.5rem; max-width: 26rem; min-width: 0; padding: .5rem; }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem; }
.card.active { border-color: var(--q-primary); box-shadow: 0 0 0 1px var(--q-primary); }
button.entry { display: flex; width: 100%; gap: .5rem; line-height: 1.6; }
button.entry .word { flex: 1; }
button.entry.lit { outline: 2px solid var(--q-primary); }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; color: var(--quiet); }
kbd {
  font: 500 .7rem/1.1rem ui-monospace, monospace; padding: 0 .3rem; border: 1px solid var(--line);
  border-radius: .25rem; color: var(--quiet); background: var(--page);
}
button.entry kbd { align-self: center; width: 1.2rem; text-align: center; padding: 0; }
button.plain.pill { background: var(--page); border: 1px solid var(--line); padding: 0 .4rem; }
.reading { width: 100%; display: grid; grid-template-columns: auto 1fr; gap: .35rem 1rem; align-items: baseline; }
.text { display: flex; flex-wrap: wrap; gap: .2rem; }
.unknown, button.plain.unknown {
  border-radius: .25rem; outline: 1px dashed var(--quiet);
  background: repeating-linear-gradient(-45deg, rgb(100 116 139 / 35%) 0 2px, transparent 2px 7px);
}
button.surprise.selected { outline: 2px solid var(--text); }
.scale { height: .6rem; border-radius: .3rem; border: 1px solid var(--line);
  background: linear-gradient(to right, transparent, rgb(var(--surprise))); }
.legend { width: 100%; max-width: 34rem; }
.ticks { display: flex; justify-content: space-between; font-size: .75rem; }
.split { width: 100%; display: grid; gap: 1rem; grid-template-columns: minmax(15rem, 1fr) 3fr; }
.map { width: 100%; height: 26rem; }
.map text { font-family: Roboto, sans-serif !important; fill: var(--text) !important; }
.map text { paint-order: stroke; stroke: var(--panel) !important; stroke-width: 3px; }
.numbers { width: 100%; display: grid; gap: 0 1rem; grid-template-columns: repeat(auto-fill, minmax(6.5rem, 1fr)); }
.written { border-left: 3px solid var(--bar); padding-left: .75rem; }
body.body--dark { --q-primary: #3b82f6 !important; }
.q-tooltip { font-size: .8rem; background: #334155; }
@media (pointer: coarse) { button.entry kbd, .keys { display: none; } }
@media (max-width: 40rem) {
  .frame { padding: .5rem; gap: .5rem; }
  .panel { padding: .75rem; border-radius: .5rem; }
  .reading, .split { grid-template-columns: minmax(0, 1fr); }
  .cards { gap: .5rem; }
  .cards > * { flex-basis: 9.5rem; }
  .weights > :first-child { flex-basis: 100%; display: flex; gap: 1rem; align-items: center; }
  .drop .block { font-size: 0; }
  button.surprise { padding: .15rem .35rem; }
  .map { height: 24rem; }
}
"""

PRIMARY = '#2563eb'


def surprise(bits: float) -> str:
    """Returns the CSS colour behind a word of that surprisal."""
    return f'background: rgb(var(--surprise) / {min(bits / MAX_BITS, 1):.0%})'


def bar(share: float) -> str:
    """Returns the CSS of a bar behind a word, as long as its number."""
    return f'background: linear-gradient(to right, var(--bar) {min(max(share, 0), 1):.1%}, transparent 0)'
