// The worker's script.

import { serve } from "./worker.js";

serve(self);
