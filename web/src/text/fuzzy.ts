// Finds streams by typed text: every word must be found; runs of letters and word beginnings count
// more. Pure.

/** The text by which people name a stream: `name{label=value,…}`. */
export function streamText(name: string, labels: Readonly<Record<string, string>>): string {
  const pairs = Object.keys(labels).sort().map((label) => `${label}=${labels[label]}`);
  return pairs.length === 0 ? name : `${name}{${pairs.join(",")}}`;
}

/** How well `query` fits, higher is better; -1 if it does not. Words are separated by blanks. */
export function score(query: string, text: string): number {
  const lower = text.toLowerCase();
  let sum = 0;
  for (const word of query.toLowerCase().split(/\s+/)) {
    if (word === "") continue;
    const one = scoreWord(word, lower);
    if (one < 0) return -1;
    sum += one;
  }
  // Of two equal fits the shorter text is better.
  return sum - text.length / 1000;
}

function scoreWord(word: string, text: string): number {
  const at = text.indexOf(word);
  if (at >= 0) return 100 + (startsWord(text, at) ? 50 : 0) + (at === 0 ? 25 : 0);
  let sum = 0;
  let from = 0;
  let previous = -2;
  for (const letter of word) {
    const found = text.indexOf(letter, from);
    if (found < 0) return -1;
    sum += found === previous + 1 ? 6 : startsWord(text, found) ? 4 : 0;
    previous = found;
    from = found + 1;
  }
  // Letters that are scattered over the text are no fit.
  return sum >= word.length * 3 ? sum : -1;
}

const startsWord = (text: string, at: number): boolean => at === 0 || !/[a-z0-9]/.test(text[at - 1] ?? "");

/**
 * The best `limit` of `items`, best first; if the query is empty, the first ones in their order.
 */
export function find<T>(query: string, items: readonly T[], text: (item: T) => string, limit: number): T[] {
  if (query.trim() === "") return items.slice(0, limit);
  const scored: { item: T; points: number }[] = [];
  for (const item of items) {
    const points = score(query, text(item));
    if (points >= 0) scored.push({ item, points });
  }
  scored.sort((a, b) => b.points - a.points || text(a.item).localeCompare(text(b.item)));
  return scored.slice(0, limit).map((one) => one.item);
}
