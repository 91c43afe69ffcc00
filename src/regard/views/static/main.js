// The page: reads the data blocks and starts the views.

import { VIEW as ACROSS } from "./door/across.js";
import { VIEW as EXPERIMENT, findBoth } from "./door/experiment.js";
import { presentFile } from "./present.js";
import { VIEWS } from "./views.js";

presentFile([...VIEWS, EXPERIMENT, ACROSS], findBoth);
