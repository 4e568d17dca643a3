// A view of the second bundle (later.ts): loaded when such a view is opened first. If that fails, the
// view says so and offers to try again.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { loader } from "../data/optional";
import { Note } from "./parts";

type Views = typeof import("../later");

const views = signal<Views | null>(null);
const fault = signal("");
let tries = 0;

/** A browser may remember that an address could not be loaded, so each attempt has its own. */
const load = loader(async () => {
  tries += 1;
  const address = `./later.js?${tries}`;
  views.value = (await import(address)) as Views;
}, fault);

/** A part of a view appears when it is loaded; a whole view says that it is. */
export function Later({ show, isPart }: { show: (views: Views) => preact.JSX.Element; isPart?: boolean }) {
  useEffect(() => void (views.value ?? load()), []);
  if (views.value !== null) return show(views.value);
  if (isPart) return null;
  return (
    <main id="main">
      <h1>Loading this view…</h1>
      {fault.value !== "" && (
        <>
          <Note bad>It could not be loaded: {fault.value}. If the agent was updated, load the page anew.</Note>
          <button type="button" onClick={() => void load()}>Try again</button>
        </>
      )}
    </main>
  );
}
