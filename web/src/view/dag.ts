// Layout of the insight graph in layers, inputs on the left. Pure.
//
// The layer of a node is the longest way from a fact; the order in a layer is the mean place of the
// neighbours, swept a few times to and fro. This is enough for some hundred nodes, and stable:
// equal input gives an equal picture.

export interface DagNode {
  readonly id: string;
  readonly inputs: readonly string[];
}

export interface Placed {
  readonly id: string;
  readonly layer: number;
  readonly row: number;
  readonly x: number;
  readonly y: number;
}

export interface Edge {
  readonly from: string;
  readonly to: string;
  readonly path: string;
}

export interface Layout {
  readonly nodes: readonly Placed[];
  readonly edges: readonly Edge[];
  readonly width: number;
  readonly height: number;
}

export interface Measures {
  readonly nodeWidth: number;
  readonly nodeHeight: number;
  /** Height of nodes that have no inputs. */
  readonly factHeight: number;
  readonly gapX: number;
  readonly gapY: number;
}

const SWEEPS = 6;

export function layout(nodes: readonly DagNode[], m: Measures): Layout {
  const all = withFacts(nodes);
  const layers = order(layersOf(all), all);
  const heightOf = (id: string) => ((all.get(id) ?? []).length === 0 ? m.factHeight : m.nodeHeight);
  const heights = layers.map((layer) => layer.reduce((sum, id) => sum + heightOf(id) + m.gapY, -m.gapY));
  const height = Math.max(0, ...heights);
  const placed = new Map<string, Placed>();
  layers.forEach((layer, at) => {
    let y = (height - (heights[at] ?? 0)) / 2;
    layer.forEach((id, row) => {
      placed.set(id, { id, layer: at, row, x: at * (m.nodeWidth + m.gapX), y });
      y += heightOf(id) + m.gapY;
    });
  });
  const edges: Edge[] = [];
  for (const [to, inputs] of all) {
    for (const from of inputs) {
      const a = placed.get(from);
      const b = placed.get(to);
      if (a === undefined || b === undefined) continue;
      edges.push({ from, to, path: curve(a.x + m.nodeWidth, a.y + heightOf(from) / 2, b.x, b.y + heightOf(to) / 2) });
    }
  }
  const width = Math.max(0, layers.length * (m.nodeWidth + m.gapX) - m.gapX);
  return { nodes: [...placed.values()], edges, width, height };
}

function curve(x1: number, y1: number, x2: number, y2: number): string {
  const bend = Math.max(24, (x2 - x1) / 2);
  return `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
}

/** Every node, and every input that is not a node itself, with its inputs. */
function withFacts(nodes: readonly DagNode[]): Map<string, readonly string[]> {
  const all = new Map<string, readonly string[]>();
  for (const node of nodes) for (const input of node.inputs) all.set(input, []);
  for (const node of nodes) all.set(node.id, [...new Set(node.inputs)].filter((input) => input !== node.id));
  return all;
}

function layersOf(all: ReadonlyMap<string, readonly string[]>): string[][] {
  const depth = new Map<string, number>();
  const visit = (id: string, trail: ReadonlySet<string>): number => {
    const known = depth.get(id);
    if (known !== undefined) return known;
    // The agent refuses cycles; if its answer contains one nevertheless, the cycle is cut here.
    if (trail.has(id)) return 0;
    const inside = new Set(trail).add(id);
    const at = Math.max(-1, ...(all.get(id) ?? []).map((input) => visit(input, inside))) + 1;
    depth.set(id, at);
    return at;
  };
  const layers: string[][] = [];
  for (const id of [...all.keys()].sort()) (layers[visit(id, new Set())] ??= []).push(id);
  return Array.from(layers, (layer) => layer ?? []);
}

function order(layers: string[][], all: ReadonlyMap<string, readonly string[]>): string[][] {
  const outputs = new Map<string, string[]>();
  for (const [id, inputs] of all) for (const input of inputs) outputs.set(input, [...(outputs.get(input) ?? []), id]);
  const place = new Map<string, number>();
  const note = () => layers.forEach((layer) => layer.forEach((id, row) => place.set(id, (row + 0.5) / layer.length)));
  const mean = (id: string, neighbours: readonly string[]) =>
    neighbours.length === 0 ? (place.get(id) ?? 0) : neighbours.reduce((sum, n) => sum + (place.get(n) ?? 0), 0) / neighbours.length;
  note();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const side = sweep % 2 === 0 ? outputs : all;
    layers = layers.map((layer) =>
      layer
        .map((id) => ({ id, at: mean(id, side.get(id) ?? []) }))
        .sort((a, b) => a.at - b.at || a.id.localeCompare(b.id))
        .map((one) => one.id),
    );
    note();
  }
  return layers;
}
