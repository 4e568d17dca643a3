// How to begin: the text of the Applications view while there are no publications.

import { Readers } from "./applications";

const DOCS = "https://github.com/barograph/barograph/blob/main/docs/guide";

const PYTHON = `import barograph

p = barograph.publication("solver", {"residual": "1"}, readers="all")
for n in range(1000):
    with p:                      # a frame
        p.put(residual=solve())`;

const C = `#include <baro.h>

baro_t *app = baro_open("solver", NULL);
baro_publication_t step = baro_publication(app, "solver", BARO_READERS_ALL);
baro_value_t residual = baro_value(step, "residual", BARO_FLOAT, "1", BARO_GAUGE, "");
for (uint64_t n = 0; n < 1000; n++) {
    baro_put_f64(residual, solve());
    baro_frame(step, n);
}
baro_close(app);`;

export function Begin() {
  return (
    <section class="begin" aria-label="How to begin">
      <p class="note">
        A program publishes values of its own, and they stand beside the system's, on the same axis of time. It needs no server and no thread, and goes on when no agent runs.
      </p>
      <div class="snippets">
        <Snippet name="Python" code={PYTHON} />
        <Snippet name="C" code={C} />
      </div>
      <p class="note">
        More: <a href={`${DOCS}/applications.md`}>docs/guide/applications.md</a> (C, C++, Fortran), <a href={`${DOCS}/python.md#publishing`}>docs/guide/python.md</a>.
      </p>
      <Readers />
    </section>
  );
}

function Snippet({ name, code }: { name: string; code: string }) {
  return (
    <figure>
      <figcaption>{name}</figcaption>
      <pre tabIndex={0} aria-label={`Example in ${name}`}><code>{code}</code></pre>
    </figure>
  );
}
