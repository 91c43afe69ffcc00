// A live page whose server runs the model: it is told who asks that server before it begins.

import "./served.js";
import "./main.js";
