// conv_step.glsl: the buffers of conv_step.h, from binding CONV_STEP_FROM on.
layout(set = 0, binding = CONV_STEP_FROM + CONV_STEP_Y) writeonly buffer conv_y_block { float conv_y[]; };
layout(set = 0, binding = CONV_STEP_FROM + CONV_STEP_WEIGHT) readonly buffer conv_weight_block { float conv_weight[]; };
layout(set = 0, binding = CONV_STEP_FROM + CONV_STEP_BIAS) readonly buffer conv_bias_block { float conv_bias[]; };
layout(set = 0, binding = CONV_STEP_FROM + CONV_STEP_HISTORY) buffer history_block { float history[]; };
layout(set = 0, binding = CONV_STEP_FROM + CONV_STEP_SEQUENCES) readonly buffer sequences_block {
  sequence sequences[];
};
