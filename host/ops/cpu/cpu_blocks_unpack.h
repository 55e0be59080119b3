// cpu_blocks_unpack.h: blocks to 16-bit integers, for cpu_blocks_set.h, with its macros and these: HALF(bits), an f16
// as float; BYTES(p) and SIGNED_BYTES(p), a vector of 16-bit integers from bytes; SIXTEEN and SIGNED_SIXTEEN, 16 of
// them from a vector; SCALES(p), the scales of a vector's elements, one for 16; CHOOSE(to, table, i), to = the elements
// i (0 to 15) of 16 bytes.

INLINE float NAME(half_at)(const uint8_t *bytes) {
  uint16_t h;
  memcpy(&h, bytes, 2);
  return HALF(h);
}

// What the elements of a block have in common. Element i is d q[i] - less[i / GROUP].
struct NAME(head) {
  float d;
  half_lanes less;
  int16_t scales[16]; // factors that q contains
};

// Eight scales and eight minima of 6 bits in 12 bytes: 0 to 3 of both are words, of which the last two bits of each
// byte belong to 4 to 7 (format.c has the layout).
INLINE void NAME(head_k)(struct NAME(head) *h, const uint8_t *b) {
  const uint64_t fours = 0x0f0f0f0f0f0f0f0f, twos = 0x3030303030303030, upper = 0xffffffff00000000;
  uint64_t words, last = 0;
  memcpy(&words, b + 4, 8);
  memcpy(&last, b + 12, 4);
  const uint64_t first = words & (fours | twos), second = ((last | last << 28) & fours) | (words >> 2 & twos);
  const two_u64 scales = {(first & ~upper) | second << 32, first >> 32 | (second & upper)};
  *(lanes_s16 *)h->scales = SIXTEEN(scales);
  h->d = NAME(half_at)(b);
  h->less = NAME(half_at)(b + 2) * EIGHT(h->scales + 8);
}

INLINE void NAME(head_iq4_xs)(struct NAME(head) *h, const uint8_t *b) {
  const uint32_t pairs = b[2] | (uint32_t)b[3] << 8;
  for (int g = 0; g < GROUPS; g++)
    h->scales[g] = (int16_t)(((b[4 + g / 2] >> (g % 2 * 4) & 15u) | (pairs >> (2 * g) & 3) << 4) - 32);
}

INLINE void NAME(head_of)(struct NAME(head) *h, const uint8_t *b, const enum dtype dtype) {
  if (has_less(dtype)) {
    NAME(head_k)(h, b);
    return;
  }
  h->d = NAME(half_at)(b + (dtype == DTYPE_Q6_K ? 208 : 0));
  if (dtype == DTYPE_Q6_K) *(lanes_s16 *)h->scales = SIGNED_SIXTEEN(*(const signed_16 *)(b + 192));
  if (dtype == DTYPE_IQ4_XS) NAME(head_iq4_xs)(h, b);
}

// A part of a block: vectors of the same bytes, vector i from element first_of() + i step_of() on. A block of 32 is one
// part; a block of 256 has several.
INLINE uint32_t NAME(parts_of)(const enum dtype dtype) {
  return groups_of(dtype) == 1 ? 1 : dtype == DTYPE_Q6_K ? 2 * V : 4;
}
INLINE uint32_t NAME(vectors_of)(const enum dtype dtype) {
  return groups_of(dtype) == 1 ? V : dtype == DTYPE_Q6_K ? 4 : 2 * V;
}
INLINE uint32_t NAME(step_of)(const enum dtype dtype) { return dtype == DTYPE_Q6_K ? 32 : W; }
INLINE uint32_t NAME(first_of)(uint32_t part, const enum dtype dtype) {
  return dtype == DTYPE_Q6_K ? part / V * 128 + part % V * W : part * 64;
}

#if WIDE < 64 // AVX-512 has its own
// Elements 0 ... 15 of a group are the low halves of 16 bytes, elements 16 ... 31 the high ones.
INLINE void NAME(halves)(NAME(words) *q, const uint8_t *b) {
  for (int i = 0; i < V / 2; i++) {
    const NAME(words) both = BYTES(b + W * i);
    q[i] = both & 15;
    q[i + V / 2] = both >> 4;
  }
}

// These halves choose elements of IQ4.
INLINE void NAME(chosen)(NAME(words) *q, const uint8_t *b) {
  const bytes_16 halves = *(const bytes_16 *)b;
  signed_16 numbers[2];
  CHOOSE(numbers[0], *(const signed_16 *)iq4, halves & 15);
  CHOOSE(numbers[1], *(const signed_16 *)iq4, halves >> 4);
  for (int i = 0; i < V; i++) q[i] = SIGNED_BYTES((const int8_t *)numbers + W * i);
}

// A bit that is missing takes 16 away.
INLINE void NAME(fifths)(NAME(words) *q, const uint8_t *b) {
  NAME(words) bit;
  for (int i = 0; i < W; i++) bit[i] = (int16_t)(1u << i);
  for (int i = 0; i < V; i++) {
    uint16_t bits = 0;
    memcpy(&bits, b + i * W / 8, W / 8);
    q[i] -= (NAME(words))((bit & (int16_t)bits) == 0) & 16;
  }
}
#endif

INLINE void NAME(part_k)(NAME(words) *q, const uint8_t *b, const int16_t *scales, uint32_t part, const bool five) {
  const uint8_t *halves = b + (five ? 48 : 16) + 32 * part;
  for (int i = 0; i < V; i++) {
    const NAME(words) both = BYTES(halves + W * i);
    q[i] = both & 15;
    q[i + V] = both >> 4;
    if (five) {
      const NAME(words) fifth = BYTES(b + 16 + W * i) >> (int)(2 * part);
      q[i] |= fifth << 4 & 16;
      q[i + V] |= fifth << 3 & 16;
    }
    q[i] *= scales[2 * part];
    q[i + V] *= scales[2 * part + 1];
  }
}

// 32 columns further the next pair of high bits is used; 64 columns further the high halves of the same bytes.
INLINE void NAME(part_q6_k)(NAME(words) *q, const uint8_t *b, const int16_t *scales, uint32_t part) {
  const uint32_t half = part / V, begin = part % V * W;
  const uint8_t *at = b + half * 64 + begin;
  const int16_t *scale = scales + half * 8 + begin / 16;
  const NAME(words) low = BYTES(at), next = BYTES(at + 32), high = BYTES(b + 128 + half * 32 + begin);
  q[0] = (((low & 15) | (high << 4 & 48)) - 32) * SCALES(scale);
  q[1] = (((next & 15) | (high << 2 & 48)) - 32) * SCALES(scale + 2);
  q[2] = ((low >> 4 | (high & 48)) - 32) * SCALES(scale + 4);
  q[3] = ((next >> 4 | (high >> 2 & 48)) - 32) * SCALES(scale + 6);
}

INLINE void NAME(part_of)(NAME(words) *q, const uint8_t *b, const struct NAME(head) *h, uint32_t part,
                          const enum dtype dtype) {
  switch (dtype) {
  case DTYPE_Q8_0:
    for (int i = 0; i < V; i++) q[i] = SIGNED_BYTES(b + 2 + W * i);
    break;
  case DTYPE_Q4_0:
    NAME(halves)(q, b + 2);
    for (int i = 0; i < V; i++) q[i] -= 8;
    break;
  case DTYPE_Q5_0:
    NAME(halves)(q, b + 6);
    NAME(fifths)(q, b + 2);
    break;
  case DTYPE_Q4_K: NAME(part_k)(q, b, h->scales, part, false); break;
  case DTYPE_Q5_K: NAME(part_k)(q, b, h->scales, part, true); break;
  case DTYPE_Q6_K: NAME(part_q6_k)(q, b, h->scales, part); break;
  case DTYPE_IQ4_NL: NAME(chosen)(q, b + 2); break;
  default: // IQ4_XS
    NAME(chosen)(q, b + 8 + 32 * part);
    NAME(chosen)(q + V, b + 24 + 32 * part);
    for (int i = 0; i < 2 * V; i++) q[i] *= h->scales[2 * part + i / V];
  }
}

INLINE void NAME(unpack_of)(struct span *to, const uint8_t *b, uint32_t groups, const enum dtype dtype) {
  const uint32_t reach = groups_of(dtype);
  for (uint32_t g = 0; g < groups; g += reach, b += bytes_of(dtype)) {
    struct NAME(head) h;
    NAME(head_of)(&h, b, dtype);
    for (uint32_t j = g; j < g + reach; j++) to->d[j] = h.d;
    if (has_less(dtype)) *(half_lanes *)to->less = h.less;
#pragma GCC unroll 1
    for (uint32_t part = 0; part < NAME(parts_of)(dtype); part++) {
      int16_t *at = to->q + g * GROUP + NAME(first_of)(part, dtype);
      NAME(words) q[V > 2 ? 2 * V : 4];
      NAME(part_of)(q, b, &h, part, dtype);
      for (uint32_t i = 0; i < NAME(vectors_of)(dtype); i++) *(NAME(words) *)(at + i * NAME(step_of)(dtype)) = q[i];
    }
  }
}

#define FORMAT(name, dtype)                                                                                            \
  TARGET static void NAME(unpack_##name)(struct span * to, const uint8_t *b, uint32_t groups) {                        \
    NAME(unpack_of)(to, b, groups, dtype);                                                                             \
  }
EVERY_FORMAT(FORMAT)
#undef FORMAT

static void (*const NAME(unpack)[])(struct span *to, const uint8_t *b, uint32_t groups) = {
#define FORMAT(name, dtype) NAME(unpack_##name),
    EVERY_FORMAT(FORMAT)
#undef FORMAT
};

// Columns k ... of a row. Returns the number of groups.
INLINE uint32_t NAME(unpack_at)(struct span *to, struct block_row w, uint32_t k) {
  const uint32_t groups = groups_from(w.K, k);
  NAME(unpack)[w.dtype - DTYPE_BLOCKS](to, w.blocks + dtype_bytes(w.dtype, k), groups);
  return groups;
}
