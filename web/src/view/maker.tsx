// The form that tests and creates an insight; without the control right, it explains how to get it.

import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../data/api";
import { chosen, load } from "./insights";
import { Note } from "./parts";
import { words } from "../text/format";

const EXAMPLE = "CREATE INSIGHT device.busiest.ratio AS\nSELECT max(value) FROM disk_busy_ratio";

const text = signal(EXAMPLE);
const runDir = signal("RUN_DIR");

type Answer = { readonly bad: boolean; readonly words: string; readonly rows?: readonly Record<string, unknown>[] };

export function Maker() {
  const answer = useSignal<Answer | null>(null);
  const busy = useSignal(false);
  const run = async (what: () => Promise<Answer>) => {
    busy.value = true;
    try {
      answer.value = await what();
    } catch (error) {
      answer.value = { bad: true, words: refusal(error) };
    }
    busy.value = false;
  };
  const test = () =>
    run(async () => {
      const { rows } = await api.testInsight(text.value);
      return { bad: false, words: rows.length === 0 ? "It is valid, but gives nothing now." : "It would give now:", rows };
    });
  const create = () =>
    run(async () => {
      const made = await api.changeInsight(text.value);
      await load();
      chosen.value = made.name;
      return { bad: false, words: `${made.name} runs.` };
    });
  return (
    <section class="maker" aria-label="Make an insight">
      <h2>Make one</h2>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <textarea aria-label="CREATE INSIGHT statement" rows={5} spellcheck={false} value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
        <p class="acts">
          <button type="button" disabled={busy.value || api.control.value === ""} aria-describedby="control-note" onClick={() => void test()}>Test</button>
          <button type="submit" disabled={busy.value || api.control.value === ""} aria-describedby="control-note">Create</button>
        </p>
      </form>
      {answer.value !== null && <Shown answer={answer.value} />}
      <Right />
    </section>
  );
}

export function refusal(error: unknown): string {
  const refused = error instanceof api.ApiError && (error.status === 401 || error.status === 403);
  return refused ? `The agent refused: ${error.message}. Without the control right this page only reads.` : words(error);
}

function Shown({ answer }: { answer: Answer }) {
  const rows = answer.rows ?? [];
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return (
    <div role="status">
      <Note bad={answer.bad}>{answer.words}</Note>
      {rows.length > 0 && (
        <table>
          <thead><tr>{columns.map((name) => <th scope="col">{name}</th>)}</tr></thead>
          <tbody>
            {rows.slice(0, 20).map((row) => (
              <tr>{columns.map((name) => <td class={typeof row[name] === "number" ? "num" : ""}>{String(row[name] ?? "–")}</td>)}</tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

/** The control right: how to get it, or that this tab has it. */
export function Right() {
  const typed = useSignal("");
  useEffect(() => void api.status().then((s) => (runDir.value = s.run_dir), () => undefined), []);
  if (api.control.value !== "") {
    return (
      <p id="control-note" class="sub">
        This tab has the control right. <button type="button" class="plain" onClick={() => api.setControl("")}>Give it up</button>
      </p>
    );
  }
  return (
    <div id="control-note" class="sub">
      <p>
        To change something, this page needs the control right. On the node, as the agent's user, read <code>{runDir.value}/control.token</code>, then open this page with <code>#control=TOKEN</code> at the end of its address, or enter it here. It stays in this tab only.
      </p>
      <form
        class="token"
        onSubmit={(event) => {
          event.preventDefault();
          api.setControl(typed.value.trim());
        }}
      >
        <input type="password" aria-label="Control token" placeholder="control token" autocomplete="off" value={typed.value} onInput={(e) => (typed.value = e.currentTarget.value)} />
        <button type="submit">Take</button>
      </form>
    </div>
  );
}
