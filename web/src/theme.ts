// Light and dark: the system's choice unless the reader chose; and the colours for drawing.

import { signal } from "@preact/signals";

export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "barograph.theme";
const INK_NAMES = ["sheet", "ahead", "rule", "rule-strong", "edge", "ink", "muted", "old", "read", "write", "read-wash", "write-wash", "red", "green"] as const;
export type Inks = Readonly<Record<(typeof INK_NAMES)[number], string>>;

const dark = matchMedia("(prefers-color-scheme: dark)");
const still = matchMedia("(prefers-reduced-motion: reduce)");

export const theme = signal<Theme>(remembered());
/** The colours of the page in the present style sheet. */
export const inks = signal<Inks>({} as Inks);
/** Whether the reader asked for reduced motion. */
export const stillness = signal(still.matches);

function remembered(): Theme {
  try {
    return THEMES.find((name) => name === localStorage.getItem(KEY)) ?? "auto";
  } catch {
    return "auto";
  }
}

export function setTheme(next: Theme): void {
  theme.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  apply();
}

function apply(): void {
  const isDark = theme.value === "dark" || (theme.value === "auto" && dark.matches);
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
  const style = getComputedStyle(document.documentElement);
  inks.value = Object.fromEntries(INK_NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) as Inks;
}

export function startTheme(): void {
  apply();
  dark.addEventListener("change", apply);
  still.addEventListener("change", () => (stillness.value = still.matches));
}
