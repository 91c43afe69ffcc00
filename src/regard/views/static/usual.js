// The views of a page of one text: it does without the code of those that compare, train and write.

import { VIEW as DOOR } from "./door/view.js";
import { VIEW as HEADS } from "./heads/view.js";
import { VIEW as MODEL } from "./model/view.js";
import { VIEW as NEURON } from "./neuron/view.js";
import { VIEW as POSITIONS } from "./positions/view.js";
import { VIEW as STORY } from "./story/view.js";

/** @type {import("./base/types").Offer[]} */
export const USUAL = [DOOR, HEADS, STORY, MODEL, NEURON, POSITIONS];
