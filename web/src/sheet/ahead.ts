// The drawing of predictions: dashed, in a band that fades as its error grows. Pure but for the
// canvas.

/** The dashes of lines that were not measured. */
export const EXPECTED_DASH = [5, 4] as const;

/**
 * Opacity of a band at its nib, where the error is least; `BAND_MIN` is that of one with a useless
 * error.
 */
const BAND_MAX = 0.34;
const BAND_MIN = 0.07;
const LINE_MIN = 0.55;

/** The certainty: 1 without an error, 0 if the error is half of the shown range or more. */
export const certainty = (half: number, shown: number): number => (shown > 0 ? Math.max(0, 1 - (2 * half) / shown) : half > 0 ? 0 : 1);
export const bandAlpha = (sure: number): number => BAND_MIN + (BAND_MAX - BAND_MIN) * sure;
export const lineAlpha = (sure: number): number => LINE_MIN + (1 - LINE_MIN) * sure;

export interface Stop {
  readonly x: number;
  readonly alpha: number;
}

/** The colour `#rrggbb` with the opacity `alpha`. */
export const tint = (ink: string, alpha: number): string => `${ink}${Math.round(Math.min(1, Math.max(0, alpha)) * 255).toString(16).padStart(2, "0")}`;

/** A gradient of an ink with the opacities of the stops, whose places ascend. */
export function faded(ctx: CanvasRenderingContext2D, ink: string, stops: readonly Stop[]): CanvasGradient | string {
  const [first, last] = [stops[0], stops.at(-1)];
  if (first === undefined || last === undefined) return "transparent";
  if (!(last.x > first.x)) return tint(ink, first.alpha);
  const gradient = ctx.createLinearGradient(first.x, 0, last.x, 0);
  for (const { x, alpha } of stops) gradient.addColorStop((x - first.x) / (last.x - first.x), tint(ink, alpha));
  return gradient;
}
