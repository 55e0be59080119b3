// stored.glsl: how a kernel's activations lie in memory: as f32, or with -DF16 as f16, clamped to its range. Include it
// first: extensions come before everything else.
#ifdef F16
#extension GL_EXT_shader_16bit_storage : require
#define stored float16_t
#define STORED(value) float16_t(clamp(value, -65504.0, 65504.0))
#else
#define stored float
#define STORED(value) (value)
#endif
