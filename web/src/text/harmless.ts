// Names that anybody may have given (paths, reasons of programs) as texts that do no harm: what is not
// seen, or turns the order of writing, is written out, and a long text is cut in its middle. Pure.

/** Control characters, marks of direction, and characters without width that no script needs. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

const written = (character: string): string => {
  const code = character.charCodeAt(0).toString(16);
  return SHORT[character] ?? (code.length <= 2 ? `\\x${code.padStart(2, "0")}` : `\\u${code.padStart(4, "0")}`);
};

/** The text with everything unseen written out. */
export const harmless = (text: string): string => text.replace(UNSEEN, written);

/** A text of at most `max` characters: the middle of a longer one is left out. */
export function cut(text: string, max: number): string {
  if (text.length <= max) return text;
  const characters = Array.from(text);
  if (characters.length <= max) return text;
  const tail = Math.floor((max - 1) / 2);
  return `${characters.slice(0, max - 1 - tail).join("")}…${characters.slice(-tail).join("")}`;
}
