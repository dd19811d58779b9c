// out[p, n] = sum over k of x[row of p, k] · weight[expert of p, n, k], for the pairs p of up to 64 rows and
// the experts that they have chosen, whose weights are MXFP4, in the order of packed_layout.py. For Hopper.
//
// A block multiplies all pairs of one expert by 16 rows of its weight, whose inputs its warps share; their
// sums are added in order. A thread reads 16 bytes of two rows at a time, which go straight to registers,
// AHEAD of them on the way. They are what it gives to tensor cores: in which order
// inputs are multiplied does not matter as long as x has the same. The bits of a float4 number are those of
// bfloat16 2^-126 times it, so one multiplication by a power of two gives the weight, exactly. They lie where
// one or two shifts and a mask bring a pair of them to their places (``_in_pairs``).
//
// A pair is a column to tensor cores, and nothing depends on how many there are. The code is short, since
// every layer fetches it anew.
//
// Defined from outside: TILES of 8 pairs, RESIDENT blocks on a multiprocessor, CLAMPED (the gate of gpt-oss),
// HALF (0), and as for product.cu KIND and ACTIVATION.

#include "hopper.cuh"

constexpr int WARPS = 4, THREADS = WARPS * 32, AHEAD = 2;
constexpr int EACH = 16 / SIDES;            // columns of a block
constexpr int AT_ONCE = TILES > 1 ? 2 : 1;  // tiles that are multiplied by weights as they are unpacked

// 16 bytes of two rows: 16 values of two parts each.
struct Piece {
    u32 words[2][4];
};

__device__ __forceinline__ void load_once(u32 (&to)[4], const unsigned char* from) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}

__device__ __forceinline__ void load_words(u32* to, const u16* from) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}

// One of the four pairs of float4 numbers of a word, times `by`.
__device__ __forceinline__ u32 two_values(u32 word, int pair, u32 by) {
    const u32 upper = pair < 2 ? word << 4 * pair : pair == 2 ? __funnelshift_l(word, word, 10) : word << 6;
    const u32 lower = pair == 3 ? word >> 2 : 0;
    u32 found;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(found) : "r"((upper ^ lower) & 0x81C081C0), "r"(by));
    return found;
}

// 2^126 times 2^(e - 127), of a byte of exponents, two times in bfloat16.
__device__ __forceinline__ u32 power_of(u32 exponents, int place) {
    return (exponents >> 8 * place & 255) * 0x00800080 + 0x3F003F00;
}

// Adds results of pairs that all blocks have written: some columns of each row, as ``triton.experts.combine``.
struct PairSums {
    const float* shares;   // [rows, each]; null where nothing is added
    const u16* residual;   // [rows, columns], or null
    u16* to;               // [rows, columns]
    u32* counters;         // of blocks of the same columns that are done; zeros before and afterwards

    __device__ __forceinline__ void add(const u16* parts, int rows, int each, int columns) const {
        constexpr int WORDS = EACH / 2;
        __shared__ bool is_last;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            is_last = atomicAdd(counters + blockIdx.x, 1) == gridDim.y - 1;
            if (is_last) counters[blockIdx.x] = 0;
        }
        __syncthreads();
        if (!is_last) return;
        for (int i = threadIdx.x; i < rows * WORDS; i += THREADS) {
            const int row = i / WORDS, column = (blockIdx.x * WORDS + i % WORDS) * 2;
            float low = 0.f, high = 0.f;
            for (int pair = row * each; pair < row * each + each; pair++) {
                const u16* const part = parts + static_cast<u64>(pair) * columns + column;
                const u32 both = __ldcg(reinterpret_cast<const u32*>(part));
                low = fmaf(shares[pair], low_of(both), low), high = fmaf(shares[pair], high_of(both), high);
            }
            const u64 at = static_cast<u64>(row) * columns + column;
            if (residual) {
                const u32 before = pair_at(residual + at);
                low = rounded(low) + low_of(before), high = rounded(high) + high_of(before);
            }
            *reinterpret_cast<u32*>(to + at) = pack(low, high);
        }
    }
};

// weight: of all experts, rows of `line` bytes, of which `first` have codes (``_in_pairs``). x [rows, inputs], or
// [pairs, inputs] where PLAIN; chosen [rows, each]; bias: of all experts, or null. by_expert: a block's number
// is an expert's, not a pair's.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
product(const unsigned char* weight, const u16* x, const u64* chosen, const u16* bias, u16* out, int rows,
        int each, int columns, int inputs, int line, int first, int by_expert, float alpha, float limit,
        const __grid_constant__ PairSums summed) {
    extern __shared__ u32 exponents[];  // [16, words + 1]
    __shared__ int own[64];
    __shared__ u32 has[2];
    __shared__ float4 partials[WARPS * TILES * 32];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, place = lane % 4;
    const int begin = blockIdx.x * EACH, program = blockIdx.y;
    const u32 chunks = static_cast<u32>(inputs) / 32;

    // The second product begins when all blocks of the first one have the choice of experts, so it need
    // not wait for its weights.
    const auto wait_for_choice = [] { if (SIDES == 2) wait_for_kernel_in_front(), let_next_kernel_come(); };
    if (SIDES == 1) let_next_kernel_come();
    if (!by_expert) wait_for_choice();
    const u64 expert = by_expert ? program : chosen[program];
    const unsigned char* const upper = weight + (expert * (columns * SIDES) + begin) * line;  // eight rows
    const unsigned char* const lower = upper + static_cast<u64>(SIDES == 2 ? columns : 8) * line;
    const u32 front = chunks / 4 * 64, rest = line - front;  // bytes of a row
    u32 next = warp * 4 + place;  // of a row's 16 bytes
    const auto ask = [&](Piece& piece) {
        const u32 at = min(next, chunks - 1) * 16;
        const u32 from = at < front ? at / 64 * 512 + lane / 4 * 64 + place * 16 : front * 7 + lane / 4 * rest + at;
        load_once(piece.words[0], upper + from);
        load_once(piece.words[1], lower + from);
        next += 4 * WARPS;
    };
    Piece pieces[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) ask(pieces[i]);
    // Exponents. Their rows begin in other banks.
    const int words = (line - first) / 4, of = thread / 8;
#pragma unroll 1
    for (int word = thread % 8 * 4; word < words; word += 32) {
        u32 found[4];
        load_once(found, (of < 8 ? upper : lower) + front * 8 + of % 8 * rest + (first - front) + word * 4);
#pragma unroll
        for (int j = 0; j < 4; j++) exponents[of * (words + 1) + word + j] = found[j];
    }
    if (by_expert) wait_for_choice();

    // The pairs of the expert, in order. The block of the first of them multiplies all.
    int found = -1;
#pragma unroll 1
    for (int i = 0; thread < rows && i < each; i++)
        if (chosen[thread * each + i] == expert) found = thread * each + i;
    const u32 mask = __ballot_sync(~0u, found >= 0);
    if (warp < 2 && lane == 0) has[warp] = mask;
    __syncthreads();
    if (found >= 0) own[__popc(mask & ((1u << lane) - 1)) + (warp ? __popc(has[0]) : 0)] = found;
    const int count = __popc(has[0]) + __popc(has[1]);
    __syncthreads();
    const bool is_ours = count > 0 && (by_expert || own[0] == program);
    if (SIDES == 1 && (is_ours || summed.shares)) wait_for_kernel_in_front();
    const auto multiply = [&] {
        u32 its[TILES];  // where rows of x begin
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const int pair = own[min(tile * 8 + lane / 4, count - 1)];
            its[tile] = static_cast<u32>(SIDES == 2 ? pair / each : pair) * inputs;
        }
        float total[TILES][2][4] = {};  // of both parts: a sum waits for the one before
        u32 now = warp * 4 + place, its_x[AT_ONCE][16] = {};
        const u32* const its_exponents = exponents + lane / 4 * (words + 1);
        const auto multiply_piece = [&](const Piece& piece) {
            const u32 from = min(now, chunks - 1), at = (from >> 1) * 64 + (from & 1) * 16;
            u32 by[2][2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32* const its = its_exponents + half * 8 * (words + 1);
                const u32 two = now < chunks ? reinterpret_cast<const u16*>(its)[from >> 1] : 0;
#pragma unroll
                for (int part = 0; part < 2; part++) by[part][half] = now < chunks ? power_of(two, part) : 0;
            }
            now += 4 * WARPS;
#pragma unroll
            for (int tile = 0; tile < TILES; tile += AT_ONCE) {
                if (tile * 8 >= count) break;
                // Columns that are not there are anything, once read; nothing of them is stored.
#pragma unroll
                for (int i = 0; i < AT_ONCE * 4; i++)
                    if ((tile + i / 4) * 8 + lane / 4 < count)
                        load_words(its_x[i / 4] + i % 4 * 4, x + its[tile + i / 4] + at + i % 4 * 8 + (i % 4 > 1 ? 16 : 0));
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    u32 a[4];
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        a[j] = two_values(piece.words[j % 2][i / 2], i % 2 * 2 + j / 2, by[i % 2][j % 2]);
#pragma unroll
                    for (int of = 0; of < AT_ONCE; of++) {
                        const u32* const b = its_x[of] + i % 2 * 8 + i / 2 * 2;
                        multiply_tile(total[tile + of][i % 2], a, b[0], b[1]);
                    }
                }
            }
        };
#pragma unroll 1
        for (u32 step = warp * 4; step < chunks; step += 4 * WARPS * AHEAD)
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (i && step + i * 4 * WARPS >= chunks) break;
                multiply_piece(pieces[i]);
                ask(pieces[i]);
            }

#pragma unroll
        for (int i = 0; i < TILES * 4; i++) total[i / 4][0][i % 4] += total[i / 4][1][i % 4];
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
            partials[(warp * TILES + tile) * 32 + lane] = {total[tile][0][0], total[tile][0][1], total[tile][0][2],
                                                           total[tile][0][3]};
        __syncthreads();
        const u16* const its_bias = bias + expert * (columns * SIDES) + begin + lane / 4;
        const float above = bias ? widen(its_bias[0]) : 0.f, below = bias ? widen(its_bias[SIDES == 2 ? columns : 8]) : 0.f;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            if (tile % WARPS != warp) continue;
            float sums[4] = {};
#pragma unroll
            for (int of = 0; of < WARPS; of++) {
                const float4 part = partials[(of * TILES + tile) * 32 + lane];
                sums[0] += part.x, sums[1] += part.y, sums[2] += part.z, sums[3] += part.w;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at = tile * 8 + place * 2 + i;
                if (at >= count) continue;
                u16* const to = out + static_cast<u64>(own[at]) * columns + begin + lane / 4;
                const float high = sums[i] + above, low = sums[i + 2] + below;
                if (SIDES == 1) {
                    to[0] = static_cast<u16>(pack(high, 0.f)), to[8] = static_cast<u16>(pack(low, 0.f));
                } else {
                    // Rounded where the modules round.
                    float gate = rounded(high), up = rounded(low);
                    if (CLAMPED) {
                        gate = fminf(gate, limit), up = fminf(fmaxf(up, -limit), limit);
                        gate = __fdividef(gate, 1.f + __expf(-alpha * gate)) * (up + 1.f);
                    } else {
                        gate = rounded(activated(gate)) * up;
                    }
                    to[0] = static_cast<u16>(pack(gate, 0.f));
                }
            }
        }
    };
    if (is_ours) multiply();
    if (SIDES == 1 && summed.shares) summed.add(out, rows, each, columns);
}
