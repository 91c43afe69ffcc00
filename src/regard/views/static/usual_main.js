// As main.js, with the usual views alone.

import { presentFile } from "./present.js";
import { USUAL } from "./usual.js";

presentFile(USUAL);
