// The page: reads the data blocks and starts the views.

import { pageHost } from "./base/host.js";
import { fileSource } from "./base/source.js";
import { present } from "./present.js";

present(
  fileSource((name) => document.getElementById(`regard-${name}`).textContent),
  pageHost(),
);
performance.mark("regard-interactive");
