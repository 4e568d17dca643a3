// JSON whose integers may exceed 2^53: those become texts with all their digits. Pure.

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const INTEGER = /^-?\d{16,}$/;

/** An integer too large for a number, kept digit by digit. */
export class BigText {
  constructor(readonly digits: string) {}
  toString(): string {
    return this.digits;
  }
}

/** The mark of a quoted big integer: a private-use character, with which no text of ours begins. */
const MARK = "\uE0B0";

export function parseExact(text: string): unknown {
  const quoted = text.replace(TOKEN, (token) =>
    !INTEGER.test(token) || Number.isSafeInteger(Number(token)) ? token : `"${MARK}${token}"`,
  );
  return JSON.parse(quoted, (_key, value: unknown) =>
    typeof value === "string" && value.startsWith(MARK) ? new BigText(value.slice(1)) : value,
  );
}

/** The number of a cell; NaN if it is none. */
export function asNumber(value: unknown): number {
  if (typeof value === "number") return value;
  if (value instanceof BigText) return Number(value.digits);
  return typeof value === "boolean" ? Number(value) : NaN;
}
