// hh_mask.h: sources of Head-in-Head masks, with the same values in GLSL and C.
#ifndef HH_MASK_H
#define HH_MASK_H
#define HH_GIVEN 0    // the values are M
#define HH_SOFTPLUS 1 // the values are logits z, made non-negative by ln(1 + e^z),
#define HH_SIGMOID 2  // 1 / (1 + e^-z)
#define HH_EXP 3      // or e^z
#endif
