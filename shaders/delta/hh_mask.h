// hh_mask.h: where the masks of a Head-in-Head layer come from, numbered alike in GLSL and C.
#ifndef HH_MASK_H
#define HH_MASK_H
#define HH_GIVEN 0    // the numbers are M already
#define HH_SOFTPLUS 1 // they are logits z, made non-negative by ln(1 + e^z),
#define HH_SIGMOID 2  // 1 / (1 + e^-z)
#define HH_EXP 3      // or e^z
#endif
