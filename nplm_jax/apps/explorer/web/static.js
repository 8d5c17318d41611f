// Computes the network of nplm_jax/models/nplm.py for the tour in one file. `model` contains the arrays in the page.
const { model } = globalThis;
const single = Float32Array.from({ length: 65536 }, (_, half) => {  // the value of each float16, indexed by its bits
  const sign = half >> 15 ? -1 : 1, exponent = (half >> 10) & 31, fraction = half & 1023;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
});
const arrays = Object.fromEntries(Object.entries(model.arrays).map(([name, { values }]) => {
  const bytes = Uint8Array.from(atob(values), (char) => char.charCodeAt(0));
  return [name, Float32Array.from(new Uint16Array(bytes.buffer), (half) => single[half])];
}));
const [V, M] = model.arrays.C_VxM.shape, N = model.reach, ids = new Map(model.words.map((word, i) => [word, i]));

// Returns the product of a matrix, stored row by row, and the vector x.
const times = (matrix, x) => Float32Array.from({ length: matrix.length / x.length }, (_, row) => {
  let sum = 0;
  for (let i = 0, at = row * x.length; i < x.length; i++, at++) sum += matrix[at] * x[i];
  return sum;
});

// The rules of `WordTokenizer` for a user's text, with the names of its methods.
const rules = model.tokenizer, names = new Set(rules.names);
const NUMBER = /^[-+$£€]?\.?\p{Nd}+(?:[-.,:\/]\p{Nd}+)*(?:st|nd|rd|th|s)?%?$/iu;
const LETTERS = String.raw`[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+`;  // \w in Python
const WORD = new RegExp(`<[a-z]+>|</s>|<UNK>|${LETTERS}(?:[-'’.,]${LETTERS})*|.`, "gsu");
const lower = (word) => word.replaceAll("İ", "i").toLowerCase();
const parts = (word) => rules.split_possessive && /.['’][sS]$/su.test(word) ? [word.slice(0, -2), word.slice(-2)] : [word];
const respell = (word) => rules.match_quotes && [
  word, word.replace(/[‘’]/g, "'").replace(/[“”]/g, '"'),
  word.replaceAll("'", "’"), word.replaceAll("“", "``").replaceAll("”", "''"),
].find((form) => ids.has(form)) || word;
const token = (part, named) => respell(
  rules.numbers && NUMBER.test(part) ? "<number>"
    : rules.proper_nouns && named && /^\p{Uppercase}/u.test(part) ? "<proper>"
      : rules.lowercase ? lower(part) : part);
const isKnown = (word) => parts(word).every((part) => ids.has(token(part, false)));
const isName = (part) => names.has(lower(part)) || !(ids.has(part) || ids.has(lower(part)));
const OPENING = { '"': "``", "—": "--", "–": "--", "…": "..." }, CLOSING = { ...OPENING, '"': "''" };

function splitPunctuation(word) {
  if (isKnown(word)) return [word];
  const [opening, inner, closing] = /^([\p{P}`]*)(.*?)([\p{P}`]*)$/su.exec(word).slice(1).map((part) => [...part]);
  if (!inner.length) return splitMarks(opening, OPENING);
  const sizes = [0, 1, 2, 3].flatMap((a) => [0, 1, 2, 3].map((b) => [a, b])).filter(([a, b]) => a <= opening.length && b <= closing.length);
  const form = ([a, b]) => [...opening.slice(opening.length - a), ...inner, ...closing.slice(0, b)].join("");
  const kept = sizes.sort((x, y) => y[0] + y[1] - x[0] - x[1]).find((size) => isKnown(form(size))) ?? [0, 0];
  const middle = form(kept), marks = [opening.slice(0, opening.length - kept[0]), closing.slice(kept[1])];
  return [...splitMarks(marks[0], OPENING), ...(isKnown(middle) ? [middle] : splitUnknown(middle)), ...splitMarks(marks[1], CLOSING)];
}

function splitMarks(marks, spellings) {
  const pieces = [];
  for (let at = 0, size; at < marks.length; at += size) {
    size = [3, 2].find((k) => at + k <= marks.length && isKnown(marks.slice(at, at + k).join(""))) ?? 1;
    const piece = marks.slice(at, at + size).join(""), spelling = spellings[piece] ?? piece;
    pieces.push(!isKnown(piece) && isKnown(spelling) ? spelling : piece);
  }
  return pieces;
}

function splitUnknown(word) {
  const places = [...word.matchAll(/['’]/g)].map((match) => match.index);
  for (const place of [...places.filter((i) => i > 1 && /[nN]/.test(word[i - 1])).map((i) => i - 1), ...places]) {
    const halves = [word.slice(0, place), word.slice(place)];
    if (halves.every((half) => half && isKnown(half))) return halves;
  }
  const pieces = word.split(/(—|–|--+|…|\.\.\.+)/).filter(Boolean);
  return pieces.length === 1 ? pieces : pieces.flatMap(splitPunctuation);
}

const split = (text) => (rules.is_verbatim ? text.split(/[ \t\n\r]+/) : text.normalize("NFC").split(/[\p{White_Space}\x1c-\x1f]+/u)).filter(Boolean);
const cut = (word) => rules.kind === "words" ? word.match(WORD)
  : rules.kind === "whitespace" && rules.split_punctuation ? splitPunctuation(word) : [word];
const tokenize = (text) => split(text).flatMap(cut)
  .flatMap((word) => parts(word)).map((part) => token(part, isName(part))).filter((word) => !model.skipped.includes(word));

function network(text) {
  const words = tokenize(text);
  if (!words.length) return { error: "Type at least one word." };
  const unknown = [...new Set(words.filter((word) => !ids.has(word)))];
  const note = unknown.length ? `not in the vocabulary, read as <rare>: ${unknown.join(" ")}` : "";
  const read = [...Array(N).fill(model.rare), ...model.prefix, ...words.map((word) => ids.get(word) ?? model.rare)].slice(-N);
  const features = read.map((id) => [...arrays.C_VxM.subarray(id * M, (id + 1) * M)]);
  const x = Float32Array.from([...features].reverse().flat());  // begins with the last word
  const y = Float32Array.from(arrays.b_V), add = (name, input) => times(arrays[name], input).forEach((value, i) => { y[i] += value; });
  let hidden = [], drives = [];
  if (arrays.H_KxP) {
    hidden = [...times(arrays.H_KxP, x)].map((value, k) => Math.tanh(arrays.d_K[k] + value));
    drives = hidden.map((_, k) => features.map((e, n) => {
      const at = k * N * M + (N - 1 - n) * M;
      return e.reduce((sum, value, i) => sum + value * arrays.H_KxP[at + i], 0);
    }));
    add("U_VxK", hidden);
  }
  if (arrays.W_VxP) add("W_VxP", x);
  const highest = y.reduce((a, b) => Math.max(a, b)), sum = y.reduce((total, value) => total + Math.exp(value - highest), 0);
  const best = [...y.keys()].sort((i, j) => y[j] - y[i]).slice(0, model.listed);
  return {
    note, step: model.step, best_step: model.best_step, hidden, drives, direct: "W_VxP" in arrays,
    words: read.map((id, n) => ({ word: model.shown[id], features: features[n] })),
    next: best.map((i) => ({ word: model.shown[i], score: y[i], p: Math.exp(y[i] - highest) / sum })),
  };
}

globalThis.tour = { network: async (text) => network(text), units: async () => model.units, training: async () => model.training };
