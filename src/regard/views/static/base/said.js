// Numbers as words: the sentences of a page that are worked out. None claims what chance gives: a share is held against the
// even share of what the word may see, a move against how far two different words of the text are apart. What counts as
// more is in claims.json, which Python reads too (views/_said.py). A sentence is a list of strings and of words,
// { text, side }, side "from" or "to".

import CLAIMS from "../claims.json" with { type: "json" };
import { readable } from "./dom.js";
import { allHeads } from "./held.js";
import { evensOf, isRead, mostOf, sharesOf, wordsOf } from "./shares.js";

export function wholePercent(share) {
  const whole = Math.round(100 * share);
  const said = share < 0.01 ? "less than 1" : whole === 100 && share < 1 ? "more than 99" : whole;
  return `${said}\u00a0%`;
}

// Of small shares a place more.
export const finePercent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

// How many times those of an even share the odds of a share are.
const odds = (share) => share / (1 - Math.min(1, share));
const over = (share, even) => (even < 1 ? odds(share) / odds(even) : 0);

const HALF = 0.5; // of its attention: where more rests on marks, a word looks at no other
const NAMED = 0.1; // of what rests on marks: one that gets less has no name there

/**
 * The row of a word in a head: { units, evens, shares }, what it may see; claims, what gets more than chance, the largest
 * first: { of: "word" | "itself" | "marks", units, share }, marks being special tokens, punctuation, and in a decoder the first
 * word, as in `regard heads`; does: whether it "looks" at words, "rests" on marks alone, or "spreads". null while the numbers
 * are not there.
 */
export function rowOf(page, head, from) {
  const shares = sharesOf(page, head, from);
  if (!shares) return null;
  const evens = evensOf(page, head, from);
  const own = head.kind === "cross" ? null : from; // what a word looks at in another text is never itself
  const all = page.state
    .units("key", { kind: head.kind, units: "words" })
    .all.map((unit) => (head.kind === "decoder" && unit.first === 0 ? { ...unit, isFirst: true } : unit));
  const units = all.filter(({ first }) => evens[first] > 0);
  const sum = (of, some) => some.reduce((total, { first }) => total + of[first], 0);
  const isAny = all.some(({ special, text }) => !special && isRead(text));
  const isWord = (unit) =>
    !unit.special && (unit.first === own || ((!isAny || isRead(unit.text)) && !isFirstWord(unit)));
  const claim = (of, some) => {
    const share = sum(shares, some);
    return over(share, sum(evens, some)) >= CLAIMS.odds ? [{ of, units: some, share }] : [];
  };
  const marks = units.filter((unit) => !isWord(unit)).sort((a, b) => shares[b.first] - shares[a.first]);
  const named = marks.filter(({ first }) => shares[first] >= NAMED * sum(shares, marks));
  const ofWords = units.filter(isWord).flatMap((unit) => claim(unit.first === own ? "itself" : "word", [unit]));
  const ofMarks = [named, named.slice(0, 1)].flatMap((some) => claim("marks", some)).slice(0, 1); // or of the largest
  const claims = [...ofWords, ...ofMarks].sort((a, b) => b.share - a.share);
  return {
    units,
    evens,
    shares,
    claims,
    does: ofWords.length > 0 ? "looks" : ofMarks.length > 0 ? "rests" : "spreads",
  };
}

const isFirstWord = ({ isFirst, special, text }) => isFirst && !special && isRead(text);
export const quoted = ({ text, special }) => (special || isRead(text) ? text : `“${readable(text)}”`);
const restOf = (unit) => (isFirstWord(unit) ? `the first word (${unit.text})` : quoted(unit));
const toWord = (unit) => ({ text: quoted(unit), side: "to" });

// "[CLS], [SEP] and “.”"
function namesOf(units) {
  const names = [...new Set(units.map(restOf))];
  return [names.slice(0, -1).join(", "), ...names.slice(-1)].filter(Boolean).join(" and ");
}

/** "In one of 72 heads, Write gives 86 % of its attention to poem." */
export function remark({ source, state }, { kind }, from, { units, evens, shares, claims, does }) {
  const heads = allHeads(source, kind).length;
  const { text } = wordsOf(state, kind).at(from);
  const begins = [heads === 1 ? "In its one head, " : `In one of ${heads} heads, `, { text, side: "from" }];
  const percent = (share, isFirst = true) => wholePercent(share) + (isFirst ? " of its attention" : "");
  if (units.length === 1) return [...begins, " can see no other word."];
  if (does === "spreads") {
    const all = units.some(({ special, text: one }) => special || !isRead(one)) ? "words and marks" : "words";
    if (units.every(({ first }) => over(shares[first], evens[first]) < CLAIMS.even))
      return [...begins, ` spreads its attention evenly over the ${units.length} ${all} that it may see.`];
    const most = units.reduce((best, each) => (shares[each.first] > shares[best.first] ? each : best));
    const [share, even] = [shares, evens].map((each) => wholePercent(each[most.first]));
    const to = kind !== "cross" && most.first === from ? "itself" : toWord(most);
    return [...begins, ` spreads its attention: at most ${share}, to `, to, `; an even share is ${even}.`];
  }
  if (does === "rests" && claims[0].share > HALF)
    return [
      ...begins,
      ` looks at no ${claims[0].units.some(isFirstWord) ? "other " : ""}word: `,
      `${percent(claims[0].share)} rests on ${namesOf(claims[0].units)}.`,
    ];
  const isAlike = (each) => kind !== "cross" && !each.special && each.text === text && each.first !== from;
  const alike = units.filter(isAlike);
  const also = (unit) => (!alike.includes(unit) ? "" : alike.length > 1 ? "another " : "the other ");
  const SAID = {
    word: (share, [unit]) => [` gives ${share} to `, also(unit), toWord(unit)],
    itself: (share) => [` keeps ${share} for itself`],
    marks: (share, some) => [` rests ${share} on ${namesOf(some)}`],
  };
  const told = claims.slice(0, 2).map((each, at) => SAID[each.of](percent(each.share, at === 0), each.units));
  return [...begins, ...told.flatMap((each, at) => (at > 0 ? [", and", ...each] : each)), "."];
}

// The word that gets most in a row that claims something, or what else does: [word, " 50 %"].
export function targetOf(claims) {
  const { of, units, share } = claims.find((each) => each.of === "word") ?? claims[0];
  return [of === "word" ? toWord(units[0]) : of === "itself" ? of : namesOf(units), ` ${wholePercent(share)}`];
}

// "7 other heads: at rest on [CLS] and [SEP], or spread over many words"; shown: how many heads stand above.
export function othersSaid(rows, shown) {
  const marks = namesOf(rows.flatMap(({ does, claims }) => (does === "rests" ? claims[0].units : [])));
  const spread = rows.some(({ does }) => does === "spreads") ? "spread over many words" : "";
  const does = [marks && `at rest on ${marks}`, spread].filter(Boolean).join(", or ");
  return `${rows.length}${shown > 0 ? " other" : ""} ${rows.length === 1 ? "head" : "heads"}: ${does}`;
}

// Shares that have a name; a larger one is "mostly".
const SHARES = {
  "many small parts, the largest": 1 / 30, // never told of a second part
  "a tenth": 1 / 10,
  "a fifth": 1 / 5,
  "a quarter": 1 / 4,
  "a third": 1 / 3,
  "two fifths": 2 / 5,
  half: 1 / 2,
};
const [MOSTLY, TOLD] = [0.55, 0.1]; // from where on it is told of a second part

function shareNamed(share) {
  const far = ([, each]) => Math.abs(each - share);
  const nearest = Object.entries(SHARES).reduce((best, each) => (far(each) < far(best) ? each : best));
  return share > MOSTLY ? "mostly" : nearest[0];
}

/**
 * Why a word stands out for another: "poem stands out here mostly because of the word itself; a quarter because head 1.4 told poem
 * that it follows a." The shares are of all that raises its score, or of all that lowers it where it is below the mean.
 * @param {{ total: number, parts: { said: string, source: number | null, value: number }[], along: number }} found see source.why
 * @param {number} key @param {string[]} names of all tokens
 */
export function reasonSaid({ total, parts, along }, key, names) {
  const word = { text: names[key], side: "to" };
  const because = ({ said, source }) => {
    if (source === null) return [` because of ${said.replace(/^feed-forward /, "the feed-forward network of layer ")}`];
    const of = { text: names[source], side: "changed" };
    const begins = [` because ${said} told `, word];
    if (source === key - 1) return [...begins, " that it follows ", of];
    if (source === key + 1) return [...begins, " that ", of, " comes next"];
    return [...begins, " of ", source === key ? "itself" : of];
  };
  const told = parts.filter(({ value }, at) => at === 0 || value / along >= TOLD);
  const does = total < 0 ? " is held back here" : " stands out here";
  return [
    word,
    does + (told[0].value / along > MOSTLY ? " " : ": "),
    ...told.flatMap((part, at) => [(at > 0 ? "; " : "") + shareNamed(part.value / along), ...because(part)]),
    ".",
  ];
}

const MANY = 64; // words

// Where most words look most at what the word of a row looks at, that is said: it is no link of its own. "" otherwise.
export function sharedBy({ source, state }, head, { claims }) {
  const words = wordsOf(state, head.kind).all.filter(({ special, text }) => !special && isRead(text));
  const [to] = claims.find(({ of }) => of === "word")?.units ?? [];
  if (!to || words.length > MANY) return "";
  const count = words.filter(({ first }) => {
    const shares = sharesOf({ source, state }, head, first);
    return shares && mostOf(state, head.kind, first, shares)?.first === to.first;
  }).length;
  return 2 * count > words.length ? `${count} of ${words.length} words look most at ${quoted(to)} here.` : "";
}

// How the texts are told apart: by the word in which they differ, or by their places.
function wheres(both) {
  const changed = [0, 1].map((side) => both.changed(side));
  if (!changed.every(({ length }) => length === 1)) return [[" above"], [" below"]];
  return changed.map(([{ text }]) => [" with ", { text, side: "changed" }]);
}

/**
 * What becomes of a word's arc from one text to the other: words, what it looks at in each, undefined where a row claims no
 * word, and another gets more than what stands in its place; shares, of these; does: "stays", "grows" or "fades" where it is
 * the same place, "follows the change" where the texts differ there and both rows claim it, "moves", "is gone" or "is new";
 * "" where there is none.
 * @param {import("./both.js").Both} both @param {import("./both.js").Pair} pair the word in each
 * @param {NonNullable<ReturnType<typeof rowOf>>[]} rows of it
 */
export function arcOf(both, pair, rows) {
  const claimed = rows.map(({ claims }) => claims.find(({ of }) => of === "word")?.units[0]);
  const words = [...claimed];
  const share = (side) => (words[side] ? rows[side].shares[words[side].first] : 0);
  const lead = share(1) > share(0) ? 1 : 0;
  const there = words[lead] && both.inPlaceOf(lead, words[lead].first);
  const { shares } = rows[1 - lead];
  const isMost = ({ first }) =>
    both.words[1 - lead].every((each) => each === pair[1 - lead] || !(shares[each.first] > shares[first]));
  if (there && (claimed[1 - lead] ? claimed[1 - lead].first === there.first : isMost(there))) {
    words[1 - lead] = there; // which may get no more than chance
    const isChange = claimed.every(Boolean) && !both.partner(lead, words[lead].first);
    const [before, after] = [share(0), share(1)].map(odds);
    const grows = after >= CLAIMS.even * before ? "grows" : before >= CLAIMS.even * after ? "fades" : "stays";
    return { words, shares: [share(0), share(1)], does: isChange ? "follows the change" : grows, isSame: true };
  }
  const does = claimed.every(Boolean) ? "moves" : words[0] ? "is gone" : words[1] ? "is new" : "";
  return { words, shares: [share(0), share(1)], does, isSame: false };
}

/**
 * "In one of 72 heads, it gives trophy 61 % of its attention with big, 65 % with small: the arc stays."
 * @param {import("./both.js").Both} both @param {import("./both.js").Pair} pair the word in each
 * @param {NonNullable<ReturnType<typeof rowOf>>[]} rows of it
 * @param {string} [ends] in the place of what becomes of the arc
 */
export function bothSaid(both, pair, rows, ends = "") {
  const { words, shares, does, isSame } = arcOf(both, pair, rows);
  const heads = allHeads(both.pages[0].source, both.kind).length;
  const begins = [
    heads === 1 ? "In its one head, " : `In one of ${heads} heads, `,
    { text: pair[0].text, side: "from" },
  ];
  if (does === "") return [...begins, " looks at no other word in either sentence."];
  const where = wheres(both);
  const isNamed = ({ first }, side) => !both.partner(side, first); // it says by itself which text is meant
  const isOnce = isSame && !isNamed(words[1], 1);
  const told = words.map((word, side) => {
    if (!word)
      return [rows[side].does === "spreads" ? " spreads its attention" : " looks at no other word", ...where[side]];
    const share = ` ${wholePercent(shares[side])}`;
    const behind = isNamed(word, side) ? [] : where[side];
    if (side === 0 || !words[0]) return [" gives ", toWord(word), share, " of its attention", ...behind];
    return [...(isOnce ? [] : [" ", toWord(word)]), share, ...behind];
  });
  return [...begins, ...told[0], isOnce ? "," : ", and", ...told[1], `: ${ends || `the arc ${does}`}.`];
}

/**
 * In how many heads a word turns from one of some words to another of them, between two texts; and what that says of the
 * model, where its contextual embedding hardly moves either.
 * @param {import("./both.js").Both} both @param {import("./both.js").Pair} pair @param {string[]} among
 */
export function turnsSaid(both, pair, among) {
  const chosen = both.heads.map((head) => both.rows(pair, head).map((row) => chosenOf(row, among)));
  const count = chosen.filter(([one, two]) => one && two && one !== two).length;
  if (count > 0) return `${count} of ${chosen.length} heads ${count > 1 ? "turn" : "turns"}`;
  return both.moved(pair) < CLAIMS.hardly * (both.apart ?? 0) ? "the model does not tell them apart" : "no head turns";
}

/** How far the words move from one text to the other. @param {import("./both.js").Both} both @param {import("./both.js").Pair} pair */
export function bothMovedSaid(both, pair) {
  const some = both.pairs.filter(([{ text }]) => isRead(text));
  const moves = some.map((each) => ({ text: each[0].text, first: each[0].first, moved: both.moved(each) }));
  return movedSaid(moves, pair[0].first, both.apart);
}

/** Which of some words a row claims, the one that gets most. @param {ReturnType<typeof rowOf>} row @param {string[]} among */
export const chosenOf = (row, among) =>
  row?.claims.find(({ of, units }) => of === "word" && among.includes(units[0].text))?.units[0].text;

/**
 * How far words move: "Write moves by 0.11, and about most, by 0.17. Two different words here are 0.59 apart."
 * @param {{ text: string, first: number, moved: number }[]} moves 1 - cosine, of each word
 * @param {number | null} from the word that is followed, by its first token
 * @param {number | null} apart 1 - cosine of two different words; null where there are no two
 */
export function movedSaid(moves, from, apart) {
  const beside = apart === null ? "." : `. Two different words here are ${apart.toFixed(2)} apart.`;
  const most = moves.reduce((one, other) => (other.moved > one.moved ? other : one));
  const mine = moves.find(({ first }) => first === from) ?? most;
  const far = ({ moved }) => (moved < 0.005 ? "less than 0.01" : moved.toFixed(2));
  const own = { text: mine.text, side: "from" };
  if (most.moved < deepest(moves, apart))
    return [`no word moves by more than ${(Math.ceil(100 * most.moved) / 100).toFixed(2)}${beside}`];
  if (mine === most) return [own, ` moves ${moves.length > 1 ? "most, " : ""}by ${far(most)}${beside}`];
  return [own, ` moves by ${far(mine)}, and `, { text: most.text, side: "to" }, ` most, by ${far(most)}${beside}`];
}

/**
 * The share of a token among the likeliest; of one that is not among them no more is known than that it has no more than they.
 * @param {{ text: string, probability: number }[]} likeliest @param {string} text
 */
export function shareIn(likeliest, text, percent = wholePercent, atMost = "at most ") {
  const found = likeliest.find((each) => each.text === text);
  const share = percent((found ?? likeliest.at(-1)).probability);
  return found || share.startsWith("less") ? share : atMost + share;
}

/**
 * What a decoder goes on with: "the model still goes on with Mary, 93 % → 71 %."
 * @param {Record<"before" | "after", { text: string, probability: number }[]>} next the likeliest tokens, the first one first
 */
export function nextSaid({ before, after }) {
  const [[was], [is]] = [before, after];
  const token = ({ text }) => ({ text: text.replace(/^[ ␣](?=.)/u, ""), side: "to" });
  const change = ({ text }) => `${shareIn(before, text)} → ${shareIn(after, text)}`;
  if (was.text === is.text) return ["the model still goes on with ", token(was), `, ${change(was)}.`];
  return ["the model goes on with ", token(is), ` (${change(is)}), no longer with `, token(was), ` (${change(was)}).`];
}

/**
 * What a decoder writes next, and from which words it reads that: "Paris comes next, with 64 %: it is read from France (47 %)
 * and capital (28 %)."
 * @param {{ text: string, probability: number }} next @param {number} place 0 for the likeliest
 * @param {{ text: string, share: number }[]} sources
 */
export function writtenSaid({ text, probability }, place, sources) {
  const begins = [
    { text, side: "from" },
    place === 0 ? " comes next, with " : " may come next, with ",
    wholePercent(probability),
  ];
  if (sources.length === 0) return [...begins, "."];
  if (sources.length === 1) return [...begins, ": it is read from ", toWord(sources[0]), "."];
  const even = 1 / sources.length;
  const all = [...sources].sort((one, other) => other.share - one.share);
  const claims = all.filter(({ share }) => over(share, even) >= CLAIMS.even).slice(0, 2);
  if (claims.length === 0) {
    const from = toWord(all[0]);
    const beside = `${wholePercent(all[0].share)}, where an even share is ${wholePercent(even)}`;
    return [...begins, ": it is read from ", from, ` more than from any other word (${beside}).`];
  }
  const told = claims.flatMap((each, at) => [at > 0 ? " and " : "", toWord(each), ` (${wholePercent(each.share)})`]);
  const isMost = claims.reduce((sum, { share }) => sum + share, 0) > HALF;
  return [...begins, `: it is read ${isMost ? "mostly" : "most"} from `, ...told, "."];
}

/** What a temperature does to the likeliest word. @param {number} temperature @param {{ probability: number, tempered: number }} best */
export function temperatureSaid(temperature, { probability, tempered }) {
  const share = wholePercent(probability);
  if (temperature === 0) return `At temperature 0 it always writes the likeliest word, though that has ${share}.`;
  const said = temperature.toFixed(1);
  if (said === "1.0") return "At temperature 1 each word is drawn with the model’s own share.";
  const does = temperature < 1 ? "likely words are drawn more often" : "unlikely words get their chance";
  const now = wholePercent(tempered);
  return `At temperature ${said} ${does}${now === share ? "" : `: the first one with ${now} instead of ${share}`}.`;
}

/** @param {{ words: number, likeliest: number }} count tokens that a model wrote by itself */
export function wroteSaid({ words, likeliest }) {
  if (words < 2) return "";
  const those = likeliest === words ? "each was" : likeliest === 1 ? "1 was" : `${likeliest} were`;
  return `It wrote ${words} tokens; ${those} the likeliest.`;
}

// The move that is drawn lowest: the largest, unless all hardly move.
export const deepest = (moves, apart) =>
  Math.max(...moves.map(({ moved }) => moved), CLAIMS.hardly * (apart ?? 0)) || 1;
