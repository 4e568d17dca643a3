// What the first bundle hands to the second one, which has views that are loaded when they are opened:
// preact, and the parts of the page of which there must be only one, since they have a state or a class
// that is asked for. Whatever the second bundle uses of the page and is not here, it has a copy of.

export { Fragment, jsx, jsxs } from "preact/jsx-runtime";
export { useEffect } from "preact/hooks";
export { signal } from "@preact/signals";
export { commandAction, control, controlled, shownNode, sql } from "./data/api";
export { beat, link, now } from "./data/feed";
export { loader, Optional } from "./data/optional";
export { labelsOf, number, rowsOf, text, time } from "./data/publications";
export { refusal, Right } from "./view/maker";
export { Note } from "./view/parts";
