// units.glsl: numbers by fours where sizes and strides allow it (ALIGNED), else one by one, in the same code. A unit is
// a vector; without ALIGNED it has one number, and then zeros. Places are in units.
const uint UNIT = ALIGNED != 0 ? 4 : 1;
#define UNITS(access, slot, name)                                                                                      \
  layout(set = 0, binding = slot) access buffer name##_block { float name[]; };                                        \
  layout(set = 0, binding = slot) access buffer name##4_block { vec4 name##4[]; };
#define LOAD(name, at) (ALIGNED != 0 ? name##4[at] : vec4(name[at], 0.0, 0.0, 0.0))
#define STORE(name, at, value)                                                                                         \
  if (ALIGNED != 0)                                                                                                    \
    name##4[at] = value;                                                                                               \
  else                                                                                                                 \
    name[at] = (value).x;
