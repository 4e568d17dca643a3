// The second bundle: views that are opened seldom, so that the page is there sooner without them.
// view/later.tsx loads it; what it needs of the first bundle comes from shared.ts.

export { Absent } from "./view/absent";
export { Bandwidths } from "./view/bandwidths";
export { Controllers } from "./view/controllers";
export { Decisions } from "./view/decisions";
export { Events } from "./view/events";
export { Phases } from "./view/phases";
