// out[t, n] = sum over k of x[t, k] · weight[n, k], for up to 64 rows of x and a weight that stays packed,
// in Q4_K or Q6_K, in the order of packed_layout.py. For Hopper.
//
// A warp has GROUPS times 16 rows of the weight, and takes pieces of 256 inputs; SHARE warps take them in
// turns, and their sums are added in order. Blocks stay for several tiles. A warp asks for its first pieces
// before the kernel in front is done, as many as fit into its own memory, and for those of the next
// tile while it multiplies. It takes codes from there as tensor cores want them: 16 bytes of a row are
// neighbouring inputs of four parts, and in which order the inputs of a part are multiplied does not
// matter as long as x has the same. A code in the lower bits of bfloat16 128.0 is 128 more than it is:
// Q4_K takes it off with the minimum, by the sum of x over a part.
//
// Tensor cores make these sums, with x as rows and a column of ones for each part, and multiply them with
// scales and minima: both are whole numbers, and a sum is two numbers in bfloat16.
//
// A row of x is a column to tensor cores, and nothing depends on how many there are.
//
// Defined from outside: TILES of 8 rows of x, GROUPS, WARPS of a block, SHARE, STAGES of a warp's pieces,
// KEEP (sums of x over parts are made once for all tiles), RESIDENT blocks on a multiprocessor, FIRST and
// SECOND, the bits of codes in both parts of the weight, HALF (0), and as for product.cu KIND, HEAD and ACTIVATION.

#include "hopper.cuh"

constexpr int THREADS = WARPS * 32;
constexpr int WIDTH = 256, WORDS = 5;  // of a piece: inputs, and words with scales of a row
constexpr int EACH = 16 / SIDES, OUTPUTS = WARPS / SHARE * GROUPS * EACH;  // of a group, of a tile
constexpr int PARTIALS = WARPS * GROUPS * TILES * 32, BUFFERS = TILES <= 2 ? 2 : 1;
constexpr u32 CODES_ROW = 128, UPPER_ROW = 64;  // bytes of a row of a piece
constexpr u32 CODES = 16 * CODES_ROW, SCALES = 16 * WORDS * 4;

__device__ constexpr u32 upper_bytes(int bits) { return bits == 6 ? 16 * UPPER_ROW : 0; }

__device__ constexpr u32 group_bytes(int bits) { return CODES + upper_bytes(bits) + SCALES; }

constexpr u32 STAGE = GROUPS * (group_bytes(FIRST) > group_bytes(SECOND) ? group_bytes(FIRST) : group_bytes(SECOND));

// What a thread asks for next, of a warp's rows: 16 of each group, the last 8 of them `step` behind the first.
struct Source {
    const unsigned char *codes, *upper, *scales;
    u32 stride, step, words[3];  // bytes; from the scales

    // rows: of the part of the weight; pieces: of a row.
    template <int BITS>
    __device__ __forceinline__ void begin(const unsigned char* rows, u32 stride, u32 step, int pieces, int piece,
                                          int lane) {
        this->stride = stride, this->step = step * stride;
        const unsigned char* const behind = rows + pieces * CODES_ROW;
        codes = rows + lane / 8 * stride + piece * CODES_ROW + lane % 8 * 16;
        upper = behind + lane / 4 * stride + piece * UPPER_ROW + lane % 4 * 16;
        scales = behind + (BITS == 6 ? pieces * UPPER_ROW : 0) + piece * (WORDS * 4);
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const u32 at = i < 2 ? lane + 32 * i : 64 + lane % 16, row = at / WORDS;
            words[i] = row % 8 * stride + row / 8 * this->step + at % WORDS * 4;
        }
    }

    // Ask for a piece, of a group `behind` bytes behind the first.
    template <int BITS>
    __device__ __forceinline__ void ask(u32 to, u32 behind, int lane) const {
        const u32 chunk = BITS == 6 ? lane % 8 ^ lane / 8 % 4 * 2 : lane % 8 ^ lane / 8 % 2 * 4;
        const u32 there = to + lane / 8 * CODES_ROW + chunk * 16;
        const u32 place = to + CODES + upper_bytes(BITS) + lane * 4;
        const unsigned char *const from = codes + behind, *const last = from + step;
        copy(there, from, true);
        copy(there + 4 * CODES_ROW, from + 4 * stride, true);
        copy(there + 8 * CODES_ROW, last, true);
        copy(there + 12 * CODES_ROW, last + 4 * stride, true);
        if (BITS == 6) {
            const u32 at = to + CODES + lane / 4 * UPPER_ROW + (lane % 4 ^ lane / 8 % 2 * 2) * 16;
            copy(at, upper + behind, true);
            copy(at + 8 * UPPER_ROW, upper + behind + step, true);
        }
        const unsigned char* const own = scales + behind;
        copy(place, reinterpret_cast<const float*>(own + words[0]));
        copy(place + 128, reinterpret_cast<const float*>(own + words[1]));
        copy(place + 256 - lane / 16 * 64, reinterpret_cast<const float*>(own + words[2]));  // two the same
    }

    __device__ __forceinline__ void advance() {
        codes += SHARE * CODES_ROW, upper += SHARE * UPPER_ROW, scales += SHARE * (WORDS * 4);
    }
};

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

// Two numbers in bfloat16, and so much to each.
template <u32 BY>
__device__ __forceinline__ u32 less(u32 pair) {
    u32 found;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(pair), "r"(0x3F803F80), "r"(BY));
    return found;
}

// Constants in registers, since an instruction has room for one in itself. `nothing`: 0, as the compiler
// must not know, which would have each of them made anew.
struct Kept {
    u32 lower, upper, many, hundreds;

    __device__ __forceinline__ explicit Kept(u32 nothing)
        : lower(0x000F000F | nothing), upper(0x00300030 | nothing), many(0x47000000 | nothing),  // 2^15
          hundreds(0x43434343 | nothing) {}

    // Byte `place` of a word, times `by`, and `less` that is too much: exact.
    __device__ __forceinline__ float byte_times(u32 word, int place, float by, float less) const {
        return fmaf(__uint_as_float(__byte_perm(word, many, 0x7404 | place << 4)), by, less);
    }

    // Byte `place`, below 128, two times in bfloat16.
    template <int place>
    __device__ __forceinline__ u32 twice(u32 bytes) const {
        return less<0xC300C300>(__byte_perm(bytes, hundreds, place ? 0x4141 : 0x4040));
    }

    // Two codes of bits from `shift` on, as they are in bfloat16 and 128 more.
    __device__ __forceinline__ u32 two_codes(u32 word, int shift) const {
        return and_or(word >> shift, lower, 0x43004300);
    }

    // With the bits of `above` from `place` on, as they are.
    __device__ __forceinline__ u32 two_codes(u32 word, int shift, u32 above, int place) const {
        const u32 moved = place > 4 ? above >> (place - 4) : above << (4 - place);
        return less<0xC320C320>(and_or(moved, upper, two_codes(word, shift)));
    }
};

// Add the inputs of a thread of part `of`, with one scale, of rows of x, to sums over parts.
__device__ __forceinline__ void sum_up(float (&summed)[TILES][4], const u32 (&b)[TILES][4], int of, int lane) {
    const u32 ones = lane / 4 == of ? 0x3F803F80 : 0;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) multiply_tile(summed[tile], b[tile], ones, ones);
}

// Sums over parts as tensor cores take them: of a part two numbers in bfloat16.
__device__ __forceinline__ void split_sums(u32 (&sums)[TILES][2], const float (&summed)[TILES][4]) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float sum = summed[tile][i] + summed[tile][i + 2], most = rounded(sum);
            sums[tile][i] = pack(most, sum - most);
        }
}

// Add a piece of a warp's groups, multiplied, to `total`. lines: of x, at the piece; kept_sums: of it.
template <int BITS>
__device__ __forceinline__ void multiply_piece(float (&total)[GROUPS][TILES][4], const unsigned char* base,
                                               const u16* const (&lines)[TILES], const u32* kept_sums,
                                               const Kept& kept, int lane) {
    constexpr int PARTS = 4, SPANS = BITS == 6 ? 4 : 2;  // that lie together; of them in a piece
    constexpr int PART = WIDTH / PARTS / SPANS, OWN = PART / 8;  // inputs; pairs of a thread
    const int row = lane / 4, place = lane % 4;
    const auto words_of = [&](int group, int half) {
        const u32 at = group * group_bytes(BITS) + CODES + upper_bytes(BITS);
        return reinterpret_cast<const u32*>(base + at) + (row + 8 * half) * WORDS;
    };
    float by[GROUPS][2], least[GROUPS][2];  // multiply scales and minima
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 both = *words_of(group, half);
            by[group][half] = half_of(both), least[group][half] = -half_of(both >> 16);
        }
    float summed[TILES][4] = {};  // x over parts 2 · place and one more, over halves of each
#pragma unroll
    for (int span = 0; span < SPANS; span++) {
        u32 codes[GROUPS][2][OWN], above[GROUPS][2][2], scales[GROUPS][2];
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const unsigned char* const at = base + group * group_bytes(BITS);
                const int line = row + 8 * half;
                scales[group][half] = words_of(group, half)[1 + span];
                if (BITS == 4) {
                    const u32 chunk = (span * 4 + place) ^ row % 2 * 4;
                    load_words(codes[group][half], at + line * CODES_ROW + chunk * 16);
                } else {
                    const u32 chunk = (span * 2 + place / 2) ^ row % 4 * 2;
                    load_words(codes[group][half], at + line * CODES_ROW + chunk * 16 + place % 2 * 8);
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
            for (int tile = 0; tile < TILES; tile++) load_words(b[tile], lines[tile] + of * PART);
            if constexpr (BITS == 4) {
                if (!KEEP) sum_up(summed, b, of, lane);
            }
            u32 a[GROUPS][OWN / 2][4];
            float scale[GROUPS][2];
#pragma unroll
            for (int group = 0; group < GROUPS; group++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float times = by[group][half], less = BITS == 6 ? -32896.f : -32768.f;
                    scale[group][half] = kept.byte_times(scales[group][half], part, times, times * less);
#pragma unroll
                    for (int i = 0; i < OWN; i++) {
                        const u32 word = codes[group][half][i];
                        a[group][i / 2][half + i % 2 * 2] =
                            BITS == 4 ? kept.two_codes(word, 4 * part)
                                      : kept.two_codes(word, 4 * part, above[group][half][i % 2], of % 8 * 2);
                    }
                }
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int group = 0; group < GROUPS; group++) {
                    float found[4];
                    multiply_part<OWN>(found, a[group], b[tile]);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float& to = total[group][tile][i];
                        to = fmaf(scale[group][i / 2], found[i], to);
                    }
                }
        }
    }
    if constexpr (BITS == 4) {
        u32 sums[TILES][2];
        if (!KEEP) split_sums(sums, summed);
#pragma unroll
        for (int tile = 0; KEEP && tile < TILES; tile++) load_words(sums[tile], kept_sums + (tile * 32 + lane) * 2);
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            u32 a[2][4];  // scales and minima
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const u32 bytes = reinterpret_cast<const u16*>(words_of(group, half) + 1 + 2 * i)[place];
                    a[i][half] = kept.twice<0>(bytes), a[i][half + 2] = kept.twice<1>(bytes);
                }
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                float found[2][4];
#pragma unroll
                for (int i = 0; i < 2; i++) multiply_first(found[i], a[i], sums[tile][0], sums[tile][1]);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float& to = total[group][tile][i];
                    to = fmaf(-128.f * by[group][i / 2], found[0][i], to);
                    to = fmaf(least[group][i / 2], found[1][i], to);
                }
            }
        }
    }
}

// Of two columns of a result: what they are joined with, and where they go.
struct Joined {
    u32 bias[2], with, sine;
    u16* to;
};

// out [nodes, columns], or queries. first, second: uint8 rows of the weight's parts, `boundary` of them
// in the first one. bias: of the rows of the weight; residual [nodes, columns]; null, or added.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
product(const unsigned char* first, const unsigned char* second, const u16* x, u16* out, const u16* bias,
        const u16* residual, const __grid_constant__ Heads heads, int nodes, int columns, int pieces,
        int boundary) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, share = warp % SHARE;
    const int own_column = warp / SHARE * GROUPS * EACH, inputs = pieces * WIDTH;
    const u32 step = KIND == PLAIN ? 8 : KIND == GATED ? columns : HALF_HEAD;
    float4* const partials = reinterpret_cast<float4*>(memory);  // [BUFFERS, WARPS, GROUPS, TILES, 32]
    unsigned char* const own = memory + BUFFERS * PARTIALS * 16 + warp * STAGES * STAGE;
    const Kept kept(nodes >> 31);
    const auto row_of = [&](int column) {
        return KIND == ROTATED ? column / HALF_HEAD * HEAD + column % HALF_HEAD : column;
    };
    const auto bits_of = [&](int column) {
        return FIRST == SECOND || row_of(column) < boundary ? FIRST : SECOND;
    };

    let_next_kernel_come();
    int next_column = blockIdx.x * OUTPUTS + own_column, next_piece = share, next_bits = FIRST;
    Source next;
    const auto begin_tile = [&] {
        const int row = row_of(next_column), bits = bits_of(next_column);
        const bool is_first = FIRST == SECOND || row < boundary;
        const u32 bytes = CODES_ROW + (bits == 6 ? UPPER_ROW : 0) + WORDS * 4;
        const u32 stride = (pieces * bytes + 15) / 16 * 16;
        const unsigned char* const rows =
            (is_first ? first : second) + static_cast<u64>(is_first ? row : row - boundary) * stride;
        next_bits = bits;
        if (bits == FIRST) next.begin<FIRST>(rows, stride, step, pieces, share, lane);
        else next.begin<SECOND>(rows, stride, step, pieces, share, lane);
    };
    const auto ask_for = [&](int stage) {
        if (next_column < columns && next_piece < pieces) {
#pragma unroll
            for (int group = 0; group < GROUPS; group++) {
                const u32 to = shared(own) + stage * STAGE + group * group_bytes(next_bits);
                const u32 behind = group * EACH * next.stride;
                if (next_bits == FIRST) next.ask<FIRST>(to, behind, lane);
                else next.ask<SECOND>(to, behind, lane);
            }
            next.advance();
            next_piece += SHARE;
            if (next_piece >= pieces) {
                next_piece = share, next_column += gridDim.x * OUTPUTS;
                begin_tile();
            }
        }
        commit_copies();
    };
    begin_tile();
#pragma unroll 1
    for (int i = 0; i < STAGES; i++) ask_for(i);
    wait_for_kernel_in_front();

    // Of result i of a tile.
    const auto joined_of = [&](int begin, int i) {
        Joined found = {};
        const int node = i / (OUTPUTS / 2), column = begin + i % (OUTPUTS / 2) * 2;
        if (column >= columns) return found;
        const u64 line = static_cast<u64>(node) * columns + column;
        if (bias)
#pragma unroll
            for (int side = 0; side < SIDES; side++) found.bias[side] = pair_at(bias + row_of(column) + side * step);
        found.to = out + line;
        if (KIND == PLAIN && residual) found.with = pair_at(residual + line);
        if (KIND == ROTATED) {
            const int inner = column % HALF_HEAD;
            found.with = pair_at(heads.cos + node * heads.angle_row + inner);
            found.sine = pair_at(heads.sin + node * heads.angle_row + inner);
            found.to = heads.row_of(column / HALF_HEAD, node, heads.places[node], out) + inner;
        }
        return found;
    };

    const auto lines_of = [&](const u16* (&lines)[TILES], int piece, int bits) {
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const u64 line = min(tile * 8 + lane / 4, nodes - 1);
            lines[tile] = x + line * inputs + piece * WIDTH + lane % 4 * (bits == 4 ? 8 : 4);
        }
    };
    // Of a warp's own pieces [pieces, TILES, 32, 2].
    u32* const kept_sums = reinterpret_cast<u32*>(memory + BUFFERS * PARTIALS * 16 + WARPS * STAGES * STAGE) +
                           warp * ((pieces + SHARE - 1) / SHARE) * (TILES * 64);
#pragma unroll 1
    for (int piece = share; KEEP && piece < pieces; piece += SHARE) {
        const u16* lines[TILES];
        lines_of(lines, piece, 4);
        float summed[TILES][4] = {};
#pragma unroll
        for (int of = 0; of < 8; of++) {
            u32 b[TILES][4], sums[TILES][2];
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) load_words(b[tile], lines[tile] + of * 32);
            sum_up(summed, b, of, lane);
            if (of < 7) continue;
            split_sums(sums, summed);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                u32* const to = kept_sums + (piece / SHARE * TILES + tile) * 64 + lane * 2;
                to[0] = sums[tile][0], to[1] = sums[tile][1];
            }
        }
    }

    int stage = 0, buffer = 0;
    for (int begin = blockIdx.x * OUTPUTS; begin < columns; begin += gridDim.x * OUTPUTS) {
        // Of this thread's first result, asked for while there is time.
        Joined joined;
        if (thread < nodes * (OUTPUTS / 2)) joined = joined_of(begin, thread);
        float total[GROUPS][TILES][4] = {};
        const int bits = bits_of(begin + own_column), end = begin + own_column < columns ? pieces : 0;
#pragma unroll 1
        for (int piece = share; piece < end; piece += SHARE) {
            const u16* lines[TILES];
            lines_of(lines, piece, bits);
            const u32* const its_sums = kept_sums + piece / SHARE * (TILES * 64);
            finish_copies<STAGES - 1>();
            __syncwarp();
            const unsigned char* const base = own + stage * STAGE;
            if (bits == FIRST) multiply_piece<FIRST>(total, base, lines, its_sums, kept, lane);
            else multiply_piece<SECOND>(total, base, lines, its_sums, kept, lane);
            __syncwarp();
            ask_for(stage);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }

        float4* const all = partials + buffer * PARTIALS;
#pragma unroll
        for (int i = 0; i < GROUPS * TILES; i++) {
            const float(&sums)[4] = total[i / TILES][i % TILES];
            all[(warp * GROUPS * TILES + i) * 32 + lane] = {sums[0], sums[1], sums[2], sums[3]};
        }
        __syncthreads();
        const auto sum_of = [&](int group, int row, int node) {
            const int its = group / GROUPS * SHARE * GROUPS + group % GROUPS;  // in its first warp
            const int at = ((its * TILES + node / 8) * 32 + row % 8 * 4 + node % 8 / 2) * 4 + row / 8 * 2 + node % 2;
            float sum = 0.f;
#pragma unroll
            for (int of = 0; of < SHARE; of++)
                sum += reinterpret_cast<const float*>(all)[of * GROUPS * TILES * 128 + at];
            return sum;
        };
        for (int i = thread; i < nodes * (OUTPUTS / 2); i += THREADS) {
            const int node = i / (OUTPUTS / 2), pair = i % (OUTPUTS / 2) * 2;
            const int group = pair / EACH, row = pair % EACH, column = begin + pair;
            if (i != thread) joined = joined_of(begin, i);
            if (column >= columns) continue;
            float sums[2][2];
#pragma unroll
            for (int side = 0; side < SIDES; side++) {
                sums[side][0] = sum_of(group, row + 8 * side, node) + low_of(joined.bias[side]);
                sums[side][1] = sum_of(group, row + 8 * side + 1, node) + high_of(joined.bias[side]);
            }
            u32 low, high;
            const int head = column / HALF_HEAD;
            finish_pair(low, high, sums[0], sums[1], joined.with, joined.sine, head < heads.heads + heads.kv_heads);
            *reinterpret_cast<u32*>(joined.to) = low;
            if (KIND == ROTATED) *reinterpret_cast<u32*>(joined.to + HALF_HEAD) = high;
        }
        if (BUFFERS == 1) __syncthreads();
        else buffer ^= 1;
    }
    finish_copies<0>();
}
