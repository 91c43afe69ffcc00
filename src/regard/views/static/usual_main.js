// As main.js, with the usual views alone.

import { pageHost } from "./base/host.js";
import { fileSource } from "./base/source.js";
import { present } from "./present.js";
import { USUAL } from "./usual.js";

present(
  fileSource((name) => document.getElementById(`regard-${name}`).textContent),
  pageHost(),
  USUAL,
);
performance.mark("regard-interactive");
