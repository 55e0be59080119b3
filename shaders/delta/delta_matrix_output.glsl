// delta_matrix_output.glsl: writes eight adjacent elements of o from f16 in 16 bytes; o, o4 and o8 are views of
// O_BINDING. Include it after delta_matrix_number.glsl.
layout(set = 0, binding = O_BINDING) O_ACCESS buffer o_block { NUMBER o[]; };
layout(set = 0, binding = O_BINDING) O_ACCESS buffer o4_block { FOUR o4[]; };
layout(set = 0, binding = O_BINDING) O_ACCESS buffer o8_block { EIGHT o8[]; };

#ifdef ACT_F16
uvec2 numbers4(uvec2 x) { return x; }
uvec4 numbers8(uvec4 x) { return x; }
#else
vec4 numbers4(uvec2 x) { return vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y)); }
eight numbers8(uvec4 x) { return eight(numbers4(x.xy), numbers4(x.zw)); }
#endif

// Elements at ... at + 7, of which `count` exist; unit divides both.
void put8(uint at, uint count, uint unit, uvec4 x) {
  if (unit == 8) {
    o8[at / 8] = numbers8(x);
  } else if (unit == 4) {
    o4[at / 4] = numbers4(x.xy);
    if (count > 4) o4[at / 4 + 1] = numbers4(x.zw);
  } else {
    [[unroll]] for (uint j = 0; j < 8; j++)
      if (j < count) o[at + j] = NUMBER(unpackHalf2x16(x[j / 2])[j % 2]);
  }
}
