// out[t, n] = sum over k of x[t, k] · weight[n, k], for up to 64 rows of x and a weight that stays packed,
// in Q4_K or Q6_K, in the order of packed_layout.py. For Hopper.
//
// A block has 16 rows of the weight, or twice as many. Its eight warps take pieces of 256 inputs in turns,
// and the eight sums are added in order. A warp asks for its first pieces before the kernel in front is
// done, as many as fit into its own memory. It takes codes from there as tensor cores want them: 16
// bytes of a row are neighbouring inputs of four parts, and in which order the inputs of a part are
// multiplied does not matter as long as x has the same. A code in the lower bits of bfloat16 128.0 is
// 128 more than it is: Q4_K takes it off with the minimum, by the sum of x, which is multiplied of ones.
//
// A row of x is a column to tensor cores, and nothing depends on how many there are.
//
// Defined from outside: TILES of 8 rows of x, GROUPS of 16 rows of the weight, STAGES of a warp's pieces,
// FIRST and SECOND, the bits of codes in both parts of the weight, HALF (0), and as for product.cu
// KIND, HEAD and ACTIVATION.

#include "hopper.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int WIDTH = 256, WORDS = 5;  // of a piece: inputs, and words with scales of a row
constexpr int OUTPUTS = 16 / SIDES * GROUPS;
constexpr u32 CODES_ROW = 128, UPPER_ROW = 64;  // bytes of a row of a piece
constexpr u32 CODES = 16 * CODES_ROW, SCALES = 16 * WORDS * 4;

__device__ constexpr u32 upper_bytes(int bits) { return bits == 6 ? 16 * UPPER_ROW : 0; }

__device__ constexpr u32 group_bytes(int bits) { return CODES + upper_bytes(bits) + SCALES; }

constexpr u32 STAGE = GROUPS * (group_bytes(FIRST) > group_bytes(SECOND) ? group_bytes(FIRST) : group_bytes(SECOND));

// Blocks at once on a multiprocessor, which limits registers: three of the smallest where its 228 KB have
// room for them, two otherwise. Three that had no room were 1.3 times as slow.
constexpr int RESIDENT = TILES * GROUPS == 1 && 3 * (WARPS * STAGES * STAGE + 1024) <= 228 * 1024 ? 3 : 2;

// Some rows of a part of the weight: 16 of each group, the last 8 of them `step` behind the first.
struct Rows {
    const unsigned char* first;
    u32 stride, step;  // bytes, rows
    int pieces;

    __device__ __forceinline__ u32 offset(int row) const {
        return (row % 8 + row / 8 * step) * stride;
    }
};

// Ask for a piece of a group's rows.
template <int BITS>
__device__ __forceinline__ void ask(unsigned char* memory, const Rows& rows, int piece, int lane) {
    const u32 to = shared(memory);
    const unsigned char* const upper = rows.first + rows.pieces * CODES_ROW;
    const unsigned char* const scales = upper + (BITS == 6 ? rows.pieces * UPPER_ROW : 0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = lane / 8 + 4 * i, chunk = lane % 8;
        const int there = BITS == 6 ? chunk ^ row % 4 * 2 : chunk ^ row % 2 * 4;
        copy(to + row * CODES_ROW + there * 16,
             rows.first + rows.offset(row) + piece * CODES_ROW + chunk * 16, true);
    }
    if (BITS == 6)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = lane / 4 + 8 * i, chunk = lane % 4;
            copy(to + CODES + row * UPPER_ROW + (chunk ^ row / 2 % 2 * 2) * 16,
                 upper + rows.offset(row) + piece * UPPER_ROW + chunk * 16, true);
        }
#pragma unroll
    for (int i = lane; i < 16 * WORDS; i += 32)
        copy(to + CODES + upper_bytes(BITS) + i * 4,
             reinterpret_cast<const float*>(scales + rows.offset(i / WORDS) +
                                            (piece * WORDS + i % WORDS) * 4));
}

template <int WORDS>
__device__ __forceinline__ void load_words(u32 (&to)[WORDS], const void* from) {
    if constexpr (WORDS == 4) {
        const uint4 four = *static_cast<const uint4*>(from);
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
        const uint2 two = *static_cast<const uint2*>(from);
        to[0] = two.x, to[1] = two.y;
    }
}

__device__ __forceinline__ float half_of(u32 word) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(static_cast<u16>(word)));
    return wide;
}

// sums[16, 8] = a[16, 16] · b[16, 8].
__device__ __forceinline__ void multiply_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." FORMAT "." FORMAT ".f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}

// sums[16, 8] = the product of a[16, PAIRS / 2, 16] and b: 16 inputs of each pair of pairs.
template <int PAIRS>
__device__ __forceinline__ void multiply_part(float (&d)[4], const u32 (&a)[PAIRS / 2][4],
                                              const u32 (&b)[PAIRS]) {
    multiply_first(d, a[0], b[0], b[1]);
#pragma unroll
    for (int i = 2; i < PAIRS; i += 2) multiply_tile(d, a[i / 2], b[i], b[i + 1]);
}

// (a & b) | c
__device__ __forceinline__ u32 and_or(u32 a, u32 b, u32 c) {
    u32 found;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(found) : "r"(a), "r"(b), "r"(c));
    return found;
}

// Of two numbers in bfloat16.
__device__ __forceinline__ u32 less_160(u32 pair) {
    u32 less;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(less) : "r"(pair), "r"(0x3F803F80), "r"(0xC320C320));
    return less;
}

// Constants in registers, since an instruction has room for one in itself. `nothing`: 0, as the compiler
// must not know, which would have each of them made anew.
struct Kept {
    u32 lower, upper, many;

    __device__ __forceinline__ explicit Kept(u32 nothing)
        : lower(0x000F000F | nothing), upper(0x00300030 | nothing), many(0x47000000 | nothing) {}  // 2^15

    // Byte `place` of a word, times `by`, and `less` that is too much: exact.
    __device__ __forceinline__ float byte_times(u32 word, int place, float by, float less) const {
        return fmaf(__uint_as_float(__byte_perm(word, many, 0x7404 | place << 4)), by, less);
    }

    // Two codes of bits from `shift` on, as they are in bfloat16 and 128 more.
    __device__ __forceinline__ u32 two_codes(u32 word, int shift) const {
        return and_or(word >> shift, lower, 0x43004300);
    }

    // With the bits of `above` from `place` on, as they are.
    __device__ __forceinline__ u32 two_codes(u32 word, int shift, u32 above, int place) const {
        const u32 moved = place > 4 ? above >> (place - 4) : above << (4 - place);
        return less_160(and_or(moved, upper, two_codes(word, shift)));
    }
};

// Multiply a warp's pieces, and add them to `total`.
template <int BITS>
__device__ __forceinline__ void multiply_rows(float (&total)[GROUPS][TILES][4], const Rows& rows,
                                              const u16* x, unsigned char* memory, int nodes, int warp, int lane) {
    constexpr int PARTS = 4, SPANS = BITS == 6 ? 4 : 2;  // that lie together; of them in a piece
    constexpr int PART = WIDTH / PARTS / SPANS, OWN = PART / 8;  // inputs; pairs of a thread
    constexpr u32 ONE = 0x3F803F80, ONES[2][4] = {{ONE, ONE, ONE, ONE}, {ONE, ONE, ONE, ONE}};
    const Kept kept(nodes >> 31);
    const int row = lane / 4, place = lane % 4, inputs = rows.pieces * WIDTH;
    const auto ask_for = [&](int piece, int stage) {
        if (piece < rows.pieces)
#pragma unroll
            for (int group = 0; group < GROUPS; group++) {
                const Rows own = {rows.first + static_cast<u64>(group * (16 / SIDES)) * rows.stride,
                                  rows.stride, rows.step, rows.pieces};
                ask<BITS>(memory + stage * STAGE + group * group_bytes(BITS), own, piece, lane);
            }
        commit_copies();
    };
#pragma unroll
    for (int i = 0; i < STAGES; i++) ask_for(warp + i * WARPS, i);
    wait_for_kernel_in_front();

    const u16* lines[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
        lines[tile] = x + static_cast<u64>(min(tile * 8 + row, nodes - 1)) * inputs + place * 2 * OWN;
    int stage = 0;
    for (int piece = warp; piece < rows.pieces; piece += WARPS) {
        finish_copies<STAGES - 1>();
        __syncwarp();
        const unsigned char* const base = memory + stage * STAGE;
        const auto words_of = [&](int group, int half) {
            const u32 at = group * group_bytes(BITS) + CODES + upper_bytes(BITS);
            return reinterpret_cast<const u32*>(base + at) + (row + 8 * half) * WORDS;
        };
        float by[GROUPS][2][2];  // multiply scales and minima
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 both = *words_of(group, half);
                by[group][half][0] = half_of(both), by[group][half][1] = -half_of(both >> 16);
            }
#pragma unroll
        for (int span = 0; span < SPANS; span++) {
            u32 codes[GROUPS][2][OWN], above[GROUPS][2][2], scales[GROUPS][2], minima[GROUPS][2];
#pragma unroll
            for (int group = 0; group < GROUPS; group++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const unsigned char* const at = base + group * group_bytes(BITS);
                    const int line = row + 8 * half;
                    scales[group][half] = words_of(group, half)[1 + span];
                    if (BITS == 4) {
                        minima[group][half] = words_of(group, half)[3 + span];
                        const u32 chunk = (span * 4 + place) ^ row % 2 * 4;
                        load_words(codes[group][half], at + line * CODES_ROW + chunk * 16);
                    } else {
                        const u32 chunk = (span * 2 + place / 2) ^ row % 4 * 2;
                        load_words(codes[group][half],
                                   at + line * CODES_ROW + chunk * 16 + place % 2 * 8);
                        const u32 other = (span / 2 * 2 + place / 2) ^ row / 2 % 2 * 2;
                        load_words(above[group][half],
                                   at + CODES + line * UPPER_ROW + other * 16 + place % 2 * 8);
                    }
                }
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int of = span * PARTS + part;
                u32 b[TILES][OWN];
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    load_words(b[tile], lines[tile] + piece * WIDTH + of * PART);
                u32 a[GROUPS][OWN / 2][4];
                float scale[GROUPS][2], added[GROUPS][2];
#pragma unroll
                for (int group = 0; group < GROUPS; group++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const float(&times)[2] = by[group][half];
                        const float less = BITS == 6 ? -32896.f : -32768.f;  // 128 are subtracted
                        float& own = scale[group][half];
                        own = kept.byte_times(scales[group][half], part, times[0], times[0] * less);
                        if (BITS == 4)
                            added[group][half] =
                                fmaf(-128.f, own, kept.byte_times(minima[group][half], part, times[1],
                                                                  times[1] * less));
#pragma unroll
                        for (int i = 0; i < OWN; i++) {
                            const u32 word = codes[group][half][i];
                            a[group][i / 2][half + i % 2 * 2] =
                                BITS == 4 ? kept.two_codes(word, 4 * part)
                                          : kept.two_codes(word, 4 * part, above[group][half][i % 2], of % 8 * 2);
                        }
                    }
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    float sums[4];
                    if constexpr (BITS == 4) multiply_part<OWN>(sums, ONES, b[tile]);
#pragma unroll
                    for (int group = 0; group < GROUPS; group++) {
                        float found[4];
                        multiply_part<OWN>(found, a[group], b[tile]);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            float& to = total[group][tile][i];
                            to = fmaf(scale[group][i / 2], found[i], to);
                            if (BITS == 4) to = fmaf(added[group][i / 2], sums[i], to);
                        }
                    }
                }
            }
        }
        __syncwarp();
        ask_for(piece + STAGES * WARPS, stage);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    finish_copies<0>();
}

// out [nodes, columns], or queries. first, second: uint8 rows of the weight's parts, `boundary` of them
// in the first one. bias: of the rows of the weight; residual [nodes, columns]; null, or added.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
product(const unsigned char* first, const unsigned char* second, const u16* x, u16* out, const u16* bias,
        const u16* residual, const __grid_constant__ Heads kept, int nodes, int columns, int pieces,
        int boundary) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int begin_column = blockIdx.x * OUTPUTS;
    const int begin = KIND == ROTATED ? begin_column / HALF_HEAD * HEAD + begin_column % HALF_HEAD : begin_column;
    const u32 step = KIND == PLAIN ? 8 : KIND == GATED ? columns : HALF_HEAD;
    const auto rows_of = [&](const unsigned char* part, int bits, int row) {
        const u32 bytes = CODES_ROW + (bits == 6 ? UPPER_ROW : 0) + WORDS * 4;
        const u32 stride = (pieces * bytes + 15) / 16 * 16;
        return Rows{part + static_cast<u64>(row) * stride, stride, step, pieces};
    };

    let_next_kernel_come();
    float total[GROUPS][TILES][4] = {};
    unsigned char* const own = memory + warp * STAGES * STAGE;
    if (FIRST == SECOND || begin < boundary)
        multiply_rows<FIRST>(total, rows_of(first, FIRST, begin), x, own, nodes, warp, lane);
    else
        multiply_rows<SECOND>(total, rows_of(second, SECOND, begin - boundary), x, own, nodes, warp, lane);
    __syncthreads();

    float4* const parts = reinterpret_cast<float4*>(memory);  // [WARPS, GROUPS, TILES, 32]
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const float(&sums)[4] = total[group][tile];
            parts[((warp * GROUPS + group) * TILES + tile) * 32 + lane] = {sums[0], sums[1], sums[2], sums[3]};
        }
    __syncthreads();

    const auto sum_of = [&](int group, int row, int node) {
        const int at = ((group * TILES + node / 8) * 32 + row % 8 * 4 + node % 8 / 2) * 4 + row / 8 * 2 + node % 2;
        float sum = 0.f;
#pragma unroll
        for (int of = 0; of < WARPS; of++)
            sum += reinterpret_cast<const float*>(parts)[of * GROUPS * TILES * 128 + at];
        return sum;
    };
    for (int i = thread; i < nodes * (OUTPUTS / 2); i += THREADS) {
        const int node = i / (OUTPUTS / 2), pair = i % (OUTPUTS / 2) * 2;
        const int group = pair / (16 / SIDES), row = pair % (16 / SIDES), column = begin_column + pair;
        float sums[2][2];
#pragma unroll
        for (int side = 0; side < SIDES; side++) {
            const u32 added = bias ? pair_at(bias + begin + pair + side * step) : 0;
            sums[side][0] = sum_of(group, row + 8 * side, node) + low_of(added);
            sums[side][1] = sum_of(group, row + 8 * side + 1, node) + high_of(added);
        }
        const u64 line = static_cast<u64>(node) * columns + column;
        u16* to = out + line;
        u32 with = KIND == PLAIN && residual ? pair_at(residual + line) : 0, sine = 0, low, high;
        const int head = column / HALF_HEAD, inner = column % HALF_HEAD;
        if (KIND == ROTATED) {
            with = pair_at(kept.cos + node * kept.angle_row + inner);
            sine = pair_at(kept.sin + node * kept.angle_row + inner);
            to = kept.row_of(head, node, kept.places[node], out) + inner;
        }
        finish_pair(low, high, sums[0], sums[1], with, sine, head < kept.heads + kept.kv_heads);
        *reinterpret_cast<u32*>(to) = low;
        if (KIND == ROTATED) *reinterpret_cast<u32*>(to + HALF_HEAD) = high;
    }
}
