// plan.h: what a device can do -> what we do on it. A pure function of recorded capabilities: no Vulkan call, tested
// with the capabilities of real cards. Vendor names appear here and nowhere else.
#ifndef PLAN_H
#define PLAN_H
#include <stdbool.h>
#include <stdint.h>

enum { CAPS_MEMORY_TYPES = 32, CAPS_MEMORY_HEAPS = 16, CAPS_MATRIX_SHAPES = 16 };

enum { PLAN_STORAGE_BUFFERS = 8 }; // that a shader may bind on every device that is not refused
enum { VENDOR_INTEL = 0x8086, VENDOR_NVIDIA = 0x10de };

// Facts as Vulkan reports them; device.c fills it, tests write it by hand.
struct device_caps {
  char name[256];
  char driver[256];                           // driver name and its own version text
  uint32_t vendor_id, device_id, device_type; // device_type: VkPhysicalDeviceType's value
  uint32_t api_version;
  uint8_t uuid[16], driver_uuid[16];
  uint32_t subgroup_size, subgroup_min, subgroup_max; // min and max equal size without subgroup size control
  bool subgroup_arithmetic, subgroup_shuffle;         // operations in compute shaders
  bool subgroup_size_control, full_subgroups;         // in compute shaders
  uint32_t max_subgroups;                             // of a workgroup whose subgroup size is chosen
  uint32_t shared_bytes;                              // maxComputeSharedMemorySize
  uint32_t max_invocations;                           // maxComputeWorkGroupInvocations
  uint32_t max_workgroup[3], max_groups[3];           // max_groups[0] is 0 when there is no compute queue
  uint32_t push_bytes;                                // maxPushConstantsSize
  uint32_t max_storage_buffers;                       // per stage and per set, the smaller
  uint64_t storage_range;                             // maxStorageBufferRange
  uint64_t max_allocation;                            // maxMemoryAllocationSize
  uint64_t max_buffer;                                // maxBufferSize, or max_allocation where unknown
  uint32_t offset_alignment;                          // minStorageBufferOffsetAlignment
  uint32_t timestamp_bits;                            // of the compute queue; 0: none
  float timestamp_period;                             // nanoseconds a tick
  // Cooperative matrices of a subgroup, (m, k) x (k, n), f16 operands and f32 sums; none where the device or the
  // Vulkan headers lack something that kernels with matrices need.
  uint32_t matrix_shapes;
  struct {
    uint8_t m, n, k;
  } matrix_shape[CAPS_MATRIX_SHAPES];
  bool matrix_conversions; // sums become operands in registers (VK_NV_cooperative_matrix2)
  bool memory_budget;      // the driver tells how much is free (VK_EXT_memory_budget)
  bool unchecked;          // NVIDIA's checks of accesses can be left out of pipelines (VK_EXT_pipeline_robustness)
  uint32_t memory_types, memory_heaps;
  struct {
    uint32_t flags, heap;
  } memory_type[CAPS_MEMORY_TYPES]; // VkMemoryPropertyFlags
  struct {
    uint64_t bytes;
    uint32_t flags;
  } memory_heap[CAPS_MEMORY_HEAPS];
};

// Decisions. Sizes are in elements unless they say bytes.
struct plan {
  bool usable;
  char reason[256]; // why not: one sentence, "" when usable
  uint32_t score;   // which device is best: larger is better; a GPU always beats software

  uint32_t subgroup; // the size that kernels are compiled for where the device lets us choose, else 0
  uint32_t subgroup_width; // of every subgroup of a workgroup that it divides, all lanes there; 0: no such promise
  uint32_t matrix_m, matrix_n, matrix_k; // the cooperative matrices that kernels use; 0: none
  uint32_t matrix_lanes;                 // of the subgroup that holds one
  uint32_t most_lanes;                   // of a workgroup, as the device has
  bool matrix_conversions;
  bool software;        // the device is the processor
  uint32_t lanes;       // invocations of a workgroup that reduces over a row (norms, sampling, softmax)
  uint32_t block_lanes; // invocations of an elementwise workgroup

  uint32_t matvec_lanes, matvec_most_lanes; // invocations that share one group of rows
  uint32_t matvec_rows, matvec_most_rows;   // rows of weights that a workgroup reads
  uint32_t matvec_unroll;                   // loads of a row in flight in one invocation, for one token
  uint32_t matvec_sets;                     // sets of lanes of a workgroup where they share x, 1: they never do
  uint32_t matvec_below;                    // fewer tokens than this: matvec, else matmul

  uint32_t matmul_tile_t, matmul_tile_n, matmul_tile_k; // tokens x outputs of a workgroup; step along K
  uint32_t matmul_sub_t, matmul_sub_n;                  // outputs of one invocation; lanes = product of the quotients

  uint32_t matrix_sums;   // most matrices of sums that a subgroup's registers hold beside what a product needs
  uint32_t matrix_step;   // most numbers of K that a product's tile has at a time
  uint32_t matrix_groups; // processors that a product's tiles are shared out to
  uint32_t matrix_parts;  // most workgroups that share a tile; 1: none do
  uint32_t step_groups;   // workgroups of attention_step that read a cache as fast as the device can
  uint32_t narrow_groups; // workgroups of few tokens' products, of many subgroups each, that run at the same time
  uint32_t narrow_tiles, narrow_parts, narrow_step; // of plan_narrow; 0: as the shape wants
  uint32_t narrow_from;                             // fewer tokens than this: matvec
  uint32_t narrow_tokens; // of a workgroup: more leave no registers to ask for what comes next
  uint32_t scan_groups; // workgroups of delta_matrix_scan, all registers taken, that run at the same time

  uint32_t chunk;         // C, tokens of a chunk in the chunkwise delta rule
  uint32_t chunk_lanes;   // most invocations of a workgroup in the pass over chunks
  uint32_t chunk_columns; // most value columns of it; fewer where shared memory is short
  uint32_t chunk_key;     // the longest key (d_k) of which chunks of that length fit, with one step a token
  uint32_t shared_bytes;  // of a workgroup, as the device has
  uint32_t chunk_from;    // when the longest text has at least this many tokens: chunkwise, else recurrent
  uint32_t rule_columns;  // value columns of a workgroup in the recurrent kernel
  uint32_t rule_rows;     // most rows of the state that one of its invocations keeps in registers
  uint32_t step_lanes;    // most invocations of a workgroup in the kernels of single tokens
  uint32_t step_width;    // lanes that share columns where each has four of them; 0: not for this device
  uint32_t step_rows, step_most_rows; // of the state that such a lane keeps, and at most, where few lanes hold a head

  uint32_t batch;             // tokens of a prompt computed at once by default
  uint64_t binding_bytes;     // most bytes behind one descriptor
  uint64_t block_bytes;       // most bytes of one buffer
  uint32_t offset_alignment;  // of a descriptor, bytes: at most 256
  uint64_t submit_operations; // record about this much work, then submit it: bounds cancel and watchdogs
  uint32_t silent_seconds;    // without an answer the device is taken for lost
  int memory_device;          // memory type for weights, state, scratch
  int memory_shared;          // host visible and coherent, device local where that costs nothing: control block
  int memory_staging;         // host visible, coherent: uploads
  int memory_readback;        // host visible, cached where there is one
  bool device_mapped;         // memory_device is host visible and coherent: no staging
};

void plan_make(const struct device_caps *caps, struct plan *plan);
// Shared memory of a workgroup, and invocations: plan_make chooses sizes for which they fit the device.
uint64_t plan_matmul_shared_bytes(const struct plan *plan);
uint32_t plan_matmul_lanes(const struct plan *plan);

// Tiles of a product on cooperative matrices, (T, K) x (K, N): of a workgroup, and how many subgroups share its sides.
struct plan_matmul {
  uint32_t tile_t, tile_n, tile_k, across_t, across_n, lanes;
  uint32_t whole, parts; // `whole` tiles have a workgroup each, the others `parts` of them, which share K; 1: none do
  uint32_t groups;       // in all
};
// split: there is room of plan_matmul_parts_bytes() for what workgroups of one tile leave each other. False where the
// plan has no matrices.
bool plan_matmul_matrix(const struct plan *plan, uint32_t T, uint32_t N, uint32_t K, bool split,
                        struct plan_matmul *out);
uint64_t plan_matmul_matrix_shared_bytes(const struct plan_matmul *m);
// A ticket of each tile that is shared, zeros before and after, and then sums. 0: none ever are.
uint64_t plan_matmul_parts_bytes(const struct plan *plan);
uint64_t plan_matmul_tickets_bytes(const struct plan *plan); // a multiple of 256

// Sizes of matvec.comp for one product of `tokens` rows (1, 2, 4, 8) of K numbers.
struct plan_matvec {
  uint32_t lanes, rows, unroll;
  uint32_t sets; // of so many lanes, which share x in shared memory; 1: it is not there
};
struct plan_matvec plan_matvec(const struct plan *plan, uint32_t K, uint32_t tokens, bool norm, bool gated);

// The same for so few tokens that reading the weights is what takes the time: subgroups share K.
struct plan_narrow {
  uint32_t parts, tiles_t, tiles_n, step, lanes;
  uint32_t passes; // workgroups with the same outputs and other tokens
};
// False where the plan has no matrices, or for sizes that this does not suit.
bool plan_matmul_narrow(const struct plan *plan, uint32_t T, uint32_t N, uint32_t K, struct plan_narrow *out);
uint64_t plan_matmul_narrow_shared_bytes(const struct plan *plan, const struct plan_narrow *m);

// Whether B texts of T steps in all, at most `longest` in one (0: all have alike), are walked in chunks.
bool plan_chunks(const struct plan *plan, uint64_t T, uint32_t B, uint64_t longest);

enum { PLAN_LEAST_CHUNK = 16 }; // that delta_chunk_prepare.comp can do
// Sizes of the two kernels of the chunkwise delta rule for one shape of heads: keys of Dk numbers, n of them a token.
struct plan_delta {
  uint32_t C;                                    // steps of a chunk
  uint32_t sub, slab;                            // of prepare
  uint32_t columns, sub_t, sub_c, sub_k, groups; // of scan
};
// False when no chunk fits: keys too long for the device's shared memory, or more steps a token than a chunk has.
bool plan_delta(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t n, struct plan_delta *out);
uint64_t plan_prepare_shared_bytes(const struct plan_delta *d);
uint64_t plan_scan_shared_bytes(const struct plan_delta *d, uint32_t Dk, uint32_t n);
// Sizes of delta_step.comp: heads of Dk x Dv in r blocks, n steps a token.
struct plan_step {
  uint32_t columns, sub;
  bool whole; // a workgroup has all columns of a head
};
bool plan_step(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t r, struct plan_step *out);
uint64_t plan_step_shared_bytes(const struct plan_step *s, uint32_t Dk, uint32_t n, uint32_t r);
// Of delta_step_fours.comp. False: such heads are not for it. heads: of all texts; norm: all columns in a workgroup, if
// they fit.
struct plan_step_fours {
  uint32_t groups, lanes;
  bool whole;
};
bool plan_step_fours(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t heads, bool norm,
                     struct plan_step_fours *out);

// The same on cooperative matrices (plan_delta.c); Head-in-Head too, whose r blocks have an unknown each, as steps have.
struct plan_delta_matrix {
  uint32_t r, block;                   // blocks of a head, rows of one: 1, Dk but for Head-in-Head
  bool conversions;                    // scan: sums become operands in registers, else through shared memory
  bool lockstep;                       // scan: a subgroup needs no barrier of its own
  uint32_t C;                          // steps of a chunk: 16, 32, 48 or 64
  uint32_t Dk;                         // rounded up to a multiple of 16
  uint32_t slab, prepare_lanes;        // of prepare: columns of K staged at a time
  uint32_t computers, tiles;           // of scan: subgroups, tiles of value columns that each owns
  uint32_t stagers;                    // further subgroups that bring what those need; 0: they do it themselves
  uint32_t ahead;                      // without those: chunks that what is staged was fetched before; 0: scan waits
  uint32_t segments;                   // of a sequence, walked at the same time; 1: it is walked once
  uint32_t join_tiles;                 // of join: tiles of value columns of a workgroup
};
// heads: value heads of all sequences; T: tokens of a sequence. False where the plan has no matrices, or none of the
// shapes fits the device.
bool plan_delta_matrix(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t r, uint32_t heads,
                       uint32_t T, struct plan_delta_matrix *out);
uint64_t plan_delta_matrix_join_bytes(const struct plan *plan, const struct plan_delta_matrix *d);
uint64_t plan_delta_matrix_reach_bytes(const struct plan *plan, const struct plan_delta_matrix *d);
// Shared memory; n: unknowns of a token, steps times blocks.
uint64_t plan_delta_matrix_prepare_bytes(const struct plan_delta_matrix *d, uint32_t n);
uint64_t plan_delta_matrix_scan_bytes(const struct plan *plan, const struct plan_delta_matrix *d, uint32_t n,
                                      bool edges);

// Sizes of attention_step.comp (plan_attention.c): a token of each text against its cache.
struct plan_attention_step {
  uint32_t lanes, queries; // queries: heads of a workgroup
  uint32_t across;         // workgroups of a part, for all heads of a text
  uint32_t parts;          // of a cache, at the most
};
// heads, kv_heads, d: of a text; B texts; seen: the most positions that a token sees.
void plan_attention_step(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                         uint32_t seen, struct plan_attention_step *out);
uint64_t plan_attention_step_bytes(const struct plan_attention_step *s, uint32_t d); // of shared memory

// Sizes of attention_matrix.comp: T tokens of each of B texts.
struct plan_attention_matrix {
  uint32_t lanes, keys;   // keys: staged at a time
  uint32_t group, across; // heads of a workgroup; workgroups that have the same tokens of a text
  uint32_t tokens;        // of a workgroup
  bool ahead, lockstep;   // it fetches ahead; a subgroup needs no barrier of its own
};
// False where the plan has no matrices, or the device no room for such heads.
bool plan_attention_matrix(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                           uint32_t T, struct plan_attention_matrix *out);
uint64_t plan_attention_matrix_bytes(const struct plan *plan, const struct plan_attention_matrix *m, uint32_t d);

// Sizes of mamba2_matrix_state.comp and mamba2_matrix_output.comp (plan_mamba2.c).
struct plan_mamba2_matrix {
  uint32_t C, N, P;       // tokens of a chunk; N and P rounded up to multiples of 16
  uint32_t lanes;
  uint32_t heads, across; // heads of a workgroup, all of one group; workgroups that have the same chunk
  bool lockstep;          // a subgroup needs no barrier of its own
};
// heads in groups; chunks: about how many there are. C, N and P do not follow it. False where the plan has no matrices,
// or the device no room for such heads.
bool plan_mamba2_matrix(const struct plan *plan, uint32_t N, uint32_t P, uint32_t heads, uint32_t groups,
                        uint32_t chunks, struct plan_mamba2_matrix *out);
uint64_t plan_mamba2_state_bytes(const struct plan_mamba2_matrix *m); // of shared memory
uint64_t plan_mamba2_output_bytes(const struct plan *plan, const struct plan_mamba2_matrix *m);

// Readable text of both, for `deltaic devices`; as snprintf: returns the length that it has or would have.
int plan_describe(const struct device_caps *caps, const struct plan *plan, char *text, uint64_t capacity);
#endif
