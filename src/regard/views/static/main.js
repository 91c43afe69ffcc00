// The page: reads the data blocks and starts the views.

import { presentFile } from "./present.js";
import { VIEWS } from "./views.js";

presentFile(VIEWS);
