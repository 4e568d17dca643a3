// Whether forecasts are drawn: one choice for all sheets, on unless the reader turned it off.

import { signal } from "@preact/signals";

const KEY = "barograph.forecast";
const OFF = "off";

function remembered(): boolean {
  try {
    return localStorage.getItem(KEY) !== OFF;
  } catch {
    return true;
  }
}

export const forecasting = signal(remembered());

function set(next: boolean): void {
  forecasting.value = next;
  try {
    if (next) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, OFF);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}

/** The switch for forecasts; shown only if there is a forecast to draw. */
export function ForecastToggle() {
  return (
    <button type="button" class="forecast" aria-pressed={forecasting.value} title="Draw what is expected right of now: dashed, within its error" onClick={() => set(!forecasting.value)}>
      Forecast
    </button>
  );
}
