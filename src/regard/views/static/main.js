// The page: reads the data blocks and starts the views.

import { pageHost } from "./base/host.js";
import { fileSource } from "./base/source.js";
import { present } from "./present.js";
import { VIEWS } from "./views.js";

present(
  fileSource((name) => document.getElementById(`regard-${name}`).textContent),
  pageHost(),
  VIEWS,
);
performance.mark("regard-interactive");
