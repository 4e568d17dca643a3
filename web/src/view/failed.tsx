// The actions that have failed for good: what started each, why it failed, one click to try it once
// more and one to give it up.

import { commandAction, control, Note, now, refusal, signal } from "../shared";
import { causeKey } from "../data/events";
import type { Action, Dead } from "../data/events";
import { causes, load } from "../data/eventload";
import { harmless } from "../text/harmless";
import { Ago, Name } from "./event-parts";

interface Answer {
  readonly isBad: boolean;
  readonly words: string;
}

const answer = signal<Answer | null>(null);
/** Numbers of the actions that are being changed. */
const changing = signal<readonly number[]>([]);
/**
 * Actions that were changed here, with the time at which each had failed: the agent may tell that
 * failure for a moment longer.
 */
const changed = signal<ReadonlyMap<number, number>>(new Map());
/** Most changed actions that are remembered. */
const CHANGED_MAX = 100;

const VERBS = {
  retry: { hint: "runs its program once more", done: (id: number) => `Action ${id} is tried once more.` },
  drop: { hint: "gives it up: it is not tried again", done: (id: number) => `Action ${id} is given up.` },
} as const;
type Verb = keyof typeof VERBS;

async function change(verb: Verb, { id, ended }: Action): Promise<void> {
  changing.value = [...changing.value, id];
  try {
    await commandAction(verb, id);
    answer.value = { isBad: false, words: VERBS[verb].done(id) };
    changed.value = new Map([...changed.value, [id, ended] as const].slice(-CHANGED_MAX));
  } catch (error) {
    answer.value = { isBad: true, words: `Action ${id}: ${refusal(error)}` };
  }
  await load();
  changing.value = changing.value.filter((one) => one !== id);
}

/** The program of an action and the end of its output. */
interface Shown {
  readonly id: number;
  readonly program: string;
  readonly output: string;
}

/** The action that is shown in full. */
const shown = signal<Shown | null>(null);

async function show(id: number): Promise<void> {
  if (shown.value?.id === id) {
    shown.value = null;
    return;
  }
  try {
    const { argv, output } = await commandAction("show", id);
    shown.value = { id, program: Array.isArray(argv) ? argv.map(String).join(" ") : "", output: typeof output === "string" ? output : "" };
  } catch (error) {
    answer.value = { isBad: true, words: `Action ${id}: ${refusal(error)}` };
  }
}

export function Failed({ dead: { list: told, total, isCut } }: { dead: Dead }) {
  const list = told.filter((action) => changed.value.get(action.id) !== action.ended);
  if (list.length === 0 && answer.value === null) return null;
  return (
    <section aria-label="Failed actions">
      <h2>Actions that have failed for good</h2>
      {total > told.length && <p class="sub">The newest {told.length} of {isCut ? "at least " : ""}{total.toLocaleString("en")}; <code>baro action list --state dead</code> shows all.</p>}
      <div role="status">{answer.value !== null && <Note bad={answer.value.isBad}>{answer.value.words}</Note>}</div>
      {list.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="List of failed actions">
          <table class="actions">
            <thead>
              <tr>
                <th scope="col">rule</th>
                <th scope="col">started by</th>
                <th scope="col">why it failed</th>
                <th scope="col" class="num wide">attempts</th>
                <th scope="col" class="wide">failed</th>
                <th scope="col"><span class="unseen">change it</span></th>
              </tr>
            </thead>
            {list.map((action) => <Line key={action.id} action={action} />)}
          </table>
        </div>
      )}
    </section>
  );
}

function Line({ action }: { action: Action }) {
  const { id } = action;
  const mayChange = control.value !== "";
  const why = action.reason === "" ? "no reason is known" : action.reason;
  const isShown = shown.value?.id === id;
  return (
    <tbody>
      <tr>
        <th scope="row"><Name of={action.rule} max={40} /> <span class="sub">action {id}</span></th>
        <td><Started action={action} /></td>
        <td class="bad">
          {mayChange ? <button type="button" class="plain" aria-expanded={isShown} title="its program, and the end of its output" onClick={() => void show(id)}><Name of={why} max={200} /></button> : <Name of={why} max={200} />}
        </td>
        <td class="num wide">{action.attempts.toLocaleString("en")}</td>
        <td class="wide sub"><Ago at={action.ended} now={now()} /></td>
        <td class="acts">
          {(Object.keys(VERBS) as Verb[]).map((verb) => (
            <button
              type="button"
              disabled={!mayChange || changing.value.includes(id)}
              aria-describedby="control-note"
              aria-label={`${verb} action ${id}`}
              title={mayChange ? VERBS[verb].hint : "needs the control right: see below"}
              onClick={() => void change(verb, action)}
            >
              {verb}
            </button>
          ))}
        </td>
      </tr>
      {isShown && <tr class="more"><td colSpan={6}><Output of={shown.value} /></td></tr>}
    </tbody>
  );
}

function Output({ of }: { of: Shown | null }) {
  if (of === null) return null;
  return (
    <>
      <pre tabIndex={0} aria-label="Its program"><code><Name of={of.program} max={4096} /></code></pre>
      {of.output === "" ? <span class="sub">It has written nothing.</span> : <pre tabIndex={0} aria-label="The end of its output"><code>{linesOf(of.output)}</code></pre>}
    </>
  );
}

/** An output line by line, so that its line breaks are kept and nothing else that is unseen. */
const linesOf = (output: string): string => output.replace(/\r?\n$/, "").split(/\r?\n/).map(harmless).join("\n");

/** The event that started an action. */
function Started({ action }: { action: Action }) {
  const cause = causes.value.get(causeKey(action));
  if (cause === undefined) return <span class="sub">asking for its event</span>;
  if (cause === null) return <span class="sub">event {action.idx} of <Name of={action.source} max={40} />: <code>baro action show {action.id}</code></span>;
  return <><span class="kind">{cause.kind}</span> <Name of={cause.path} /></>;
}
