// What the parts of the page agree on. What each member means stands in source.js, state.js, views.js and host.js.

import type { Colours } from "./colours.js";
import type { State } from "./state.js";

export type Kind = "encoder" | "decoder" | "cross";
export type Side = "query" | "key";
export type Row = Float64Array | null; // null: not yet

export interface Head {
  layer: number;
  head: number;
}

export interface Token {
  text: string;
  surface?: string;
  bytes?: string;
  special: boolean;
  sequence: number | null;
  word: number | null;
  unknown?: boolean;
  sink?: boolean;
  only?: number;
}

/** A token, or a span of them. */
export interface Chosen {
  side: Side;
  index: number;
  to?: number;
}

/** A token that a decoder goes on with. */
export interface Next {
  text: string;
  probability: number;
}

export interface Source {
  facts: any; // JSON, as views/_blocks.py writes it
  kinds: Kind[];
  layers(kind: Kind): number[];
  heads(kind: Kind, layer: number): number;
  holds(kind: Kind, layer: number, head: number): boolean;
  tokens(kind: Kind, side: Side): Token[];
  words(kind: Kind, side: Side): string[];
  pair(kind: Kind): boolean;
  computed(kind: Kind): boolean;
  statistics(kind: Kind): Record<string, number[][]> | null;
  row(kind: Kind, layer: number, head: number, query: number, what?: string): Row;
  column(kind: Kind, layer: number, head: number, key: number, what?: string): Row;
  listen(listener: () => void): void;
  allows?(kind: Kind, layer: number, head: number, query: number, key: number): boolean;
  measures?(kind: Kind): string[];
  /** The run without a head, or where no other word looks at that of the token `unseen`; null while it is on its way,
   * undefined where it cannot be had. */
  check?(
    kind: Kind,
    what: Head | { unseen: number },
  ):
    | { cosine: number[]; apart?: number | null; next?: Record<"before" | "after", Next[]>; error?: string }
    | null
    | undefined;
  /** What raises the score of a query and a key over the mean of its row; undefined where it is not known. */
  why?(
    head: { kind: Kind; layer: number; head: number },
    query: number,
    key: number,
  ): { total: number; parts: { said: string; source: number | null; value: number }[]; along: number } | undefined;
  /** The same of all pairs of a head, and the earlier heads that feed it; null while it is on its way. */
  whyOf?(kind: Kind, layer: number, head: number): any;
  /** What stands in the header beside what is in every page's. */
  links?: HTMLElement;
  /** A word of the text, by its first token, beside one of another sentence: see movement/beside.js. */
  beside?(first: number): any;
  /** Two texts that the front door shows: see door/experiment.js. */
  experiment?: { texts: string[]; both(): any };
  /** Other words in the place of one, by its first token, with what a head gives from a word to each there: null where that is
   * on its way, or not asked for; null for all while they are sought, and undefined where they cannot be had. */
  instead?(
    head: { kind: Kind; layer: number; head: number },
    from: number,
    to: number,
    asked: string[],
  ): { text: string; share: number | null }[] | null | undefined;
  /** What becomes of the text with another word in the place of one; undefined where no model is there: see door/swap.js. */
  swap?(at: any, to: any): Node[];
  /** Of a network that is trained: the traced steps, and which is on. */
  runs?: Source[];
  turn?(place: number): void;
}

/** The state's fields; a view may have more. */
export interface Values {
  bare: boolean;
  view: string;
  kind: Kind;
  layer: number;
  head: number;
  also: Head[];
  pin: Chosen | null;
  hover: Chosen | null;
  row: number | null;
  run: number;
  filter: string;
  what: string;
  at: number | null;
  specials: boolean;
  units: "pieces" | "words";
  theme: "auto" | "light" | "dark";
  refused: Head[] | null;
  [field: string]: any;
}

export interface Page {
  source: Source;
  state: State;
  colours: Colours;
  link: Host["link"];
}

export interface View {
  element: HTMLElement;
  changed(names: Set<string>): void;
  start?(): void;
  print?(on: boolean): (() => void) | undefined;
  picture?(): any;
}

/** What a view's module says of it. */
export interface Offer {
  name: string;
  label: string;
  fields?: Record<string, any>;
  guide?: string | ((source: Source, values: Values) => string);
  help?: string[][];
  about?(source: Source): string[];
  fits?(source: Source): boolean;
  /** The front door: what opens where the address says nothing. */
  home?: boolean;
  open(page: Page): View;
}

export interface Host {
  address: { read(): string; write(text: string, step?: boolean): void; listen(listener: () => void): void };
  addressed: string;
  keys: Pick<GlobalEventHandlers, "addEventListener">;
  theme(chosen: string): string;
  surroundings(listener: () => void): void;
  landmark: string;
  title(text: string): void;
  printing(print: (on: boolean) => void): void;
  height(): number;
  resized(listener: () => void): void;
  link: (() => { address: string; said: string }) | null;
  restart(): void;
  gone?: AbortSignal;
  slot?: HTMLElement | null;
}
