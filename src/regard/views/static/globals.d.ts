// What the scripts find around them.

/** The widget's style sheet, which Python writes before its module. */
declare const STYLE: string;

interface Window {
  /** For tests, and for whoever wants to check the numbers: see main.js. */
  regard: Record<string, unknown>;
}
