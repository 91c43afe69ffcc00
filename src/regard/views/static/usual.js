// The views of a page that shows neither a training nor how a text was written: it does without the code of those.

import { VIEW as DIFFERENCE } from "./difference/view.js";
import { VIEW as HEADS } from "./heads/view.js";
import { VIEW as MODEL } from "./model/view.js";
import { VIEW as MOVEMENT } from "./movement/view.js";
import { VIEW as NEURON } from "./neuron/view.js";
import { VIEW as POSITIONS } from "./positions/view.js";
import { VIEW as SENSES } from "./senses/view.js";
import { VIEW as STORY } from "./story/view.js";

/** @type {import("./base/types").Offer[]} */
export const USUAL = [MOVEMENT, DIFFERENCE, SENSES, HEADS, STORY, MODEL, NEURON, POSITIONS];
