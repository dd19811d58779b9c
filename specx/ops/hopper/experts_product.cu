// out[p, n] = sum over k of x[row of p, k] · weight[expert of p, n, k], for the pairs p of up to 64 rows and
// the experts that they have chosen, whose weights are MXFP4, in the order of packed_layout.py. For Hopper.
//
// A block multiplies all pairs of one expert by UNITS times 16 rows of its weight; SHARE warps have a unit
// together, and their sums are added in order. A thread reads 16 bytes of two rows at a time, which go
// straight to registers, AHEAD of them on the way. They are what it gives to tensor cores: in which order
// inputs are multiplied does not matter as long as x has the same. The bits of a float4 number are those of
// bfloat16 2^-126 times it, so one multiplication by a power of two gives the weight, exactly.
//
// A pair is a column to tensor cores, and nothing depends on how many there are. The code is short, since
// every layer fetches it anew.
//
// Defined from outside: TILES of 8 pairs, WARPS of a block, SHARE, AHEAD, RESIDENT blocks on a
// multiprocessor, CLAMPED (the gate of gpt-oss), HALF (0), and as for product.cu KIND and ACTIVATION.

#include "hopper.cuh"

constexpr int THREADS = WARPS * 32, UNITS = WARPS / SHARE;
constexpr int EACH = 16 / SIDES;  // columns of a unit

// 16 bytes of two rows, 16 values of two parts, and the exponents of these.
struct Piece {
    u32 words[2][4], exponents[2];
};

__device__ __forceinline__ void load_once(u32 (&to)[4], const unsigned char* from) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}

__device__ __forceinline__ u32 load_two(const unsigned char* from) {
    u16 two;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(two) : "l"(from));
    return two;
}

__device__ __forceinline__ void load_words(u32* to, const u16* from) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}

// Two float4 numbers of bits from 4 · place on, times `by`.
__device__ __forceinline__ u32 two_values(u32 word, int place, u32 by) {
    const u32 sign = word << (12 - 4 * place) & 0x80008000;
    const u32 rest = place < 2 ? word << (6 - 4 * place) : word >> (4 * place - 6);
    u32 found;
    asm("lop3.b32 %0, %1, 0x01C001C0, %2, 0xEA;" : "=r"(found) : "r"(rest), "r"(sign));  // (a & b) | c
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(found) : "r"(found), "r"(by));
    return found;
}

// 2^126 times 2^(e - 127), of a byte of exponents, two times in bfloat16.
__device__ __forceinline__ u32 power_of(u32 exponents, int place) {
    return (exponents >> 8 * place & 255) * 0x00800080 + 0x3F003F00;
}

// weight: of all experts, rows of `line` bytes, the exponents behind `first` of them. x [rows, inputs], or
// [pairs, inputs] where PLAIN; chosen [rows, each]; bias: of all experts, or null. by_expert: a block's number
// is an expert's, not a pair's.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
product(const unsigned char* weight, const u16* x, const u64* chosen, const u16* bias, u16* out, int rows,
        int each, int columns, int inputs, int line, int first, int by_expert, float alpha, float limit) {
    __shared__ int own[64];
    __shared__ u32 has[2];
    __shared__ float4 partials[SHARE > 1 ? WARPS * TILES * 32 : 1];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, share = warp % SHARE;
    const int place = lane % 4, program = blockIdx.y, chunks = inputs / 32;
    const int begin = (blockIdx.x * UNITS + warp / SHARE) * EACH;
    const int row = min(begin, columns - EACH) + lane / 4;  // of the expert's weight

    // The second product begins when all blocks of the first one have the choice of experts, so it need
    // not wait for its weights.
    const auto wait_for_choice = [] { if (SIDES == 2) wait_for_kernel_in_front(), let_next_kernel_come(); };
    if (SIDES == 1) let_next_kernel_come();
    if (!by_expert) wait_for_choice();
    const u64 expert = by_expert ? program : chosen[program];
    const unsigned char* const upper = weight + (expert * (columns * SIDES) + row) * line;
    const unsigned char* const lower = upper + static_cast<u64>(SIDES == 2 ? columns : 8) * line;
    int next = share * 4 + place;  // of a row's 16 bytes
    const auto ask = [&](Piece& piece) {
        const int at = min(next, chunks - 1);
        load_once(piece.words[0], upper + at * 16);
        load_once(piece.words[1], lower + at * 16);
        piece.exponents[0] = load_two(upper + first + at / 2 * 2);
        piece.exponents[1] = load_two(lower + first + at / 2 * 2);
        next += 4 * SHARE;
    };
    Piece pieces[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) ask(pieces[i]);
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
    if (count == 0) return;
    __syncthreads();
    if (!by_expert && own[0] != program) return;
    if (SIDES == 1) wait_for_kernel_in_front();

    // Columns that are not there repeat the last one.
    const u16* its[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const int pair = own[min(tile * 8 + lane / 4, count - 1)];
        its[tile] = x + static_cast<u64>(SIDES == 2 ? pair / each : pair) * inputs;
    }
    float total[TILES][2][4] = {};  // of both parts: a sum waits for the one before
    int now = share * 4 + place;
    const auto load_x = [&](u32 (&to)[16], int tile) {
        const int from = min(now, chunks - 1), at = from / 2 * 64 + from % 2 * 16;
#pragma unroll
        for (int i = 0; i < 4; i++) load_words(to + i * 4, its[tile] + at + i * 8 + (i > 1 ? 16 : 0));
    };
    const auto multiply_piece = [&](const Piece& piece) {
        u32 by[2][2], b[TILES == 1 ? 1 : 2][16];
#pragma unroll
        for (int i = 0; i < 4; i++) by[i / 2][i % 2] = now < chunks ? power_of(piece.exponents[i % 2], i / 2) : 0;
        load_x(b[0], 0);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            if (tile * 8 >= count) break;
            if (tile + 1 < TILES && tile * 8 + 8 < count) load_x(b[(tile + 1) % 2], tile + 1);
            const u32(&its_x)[16] = b[tile % 2];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int part = 0; part < 2; part++) {
                    u32 a[4];
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        a[j] = two_values(__byte_perm(piece.words[j % 2][i], 0, 0x3120), part + j / 2 * 2, by[part][j % 2]);
                    multiply_tile(total[tile][part], a, its_x[part * 8 + i * 2], its_x[part * 8 + i * 2 + 1]);
                }
        }
        now += 4 * SHARE;
    };
#pragma unroll 1
    for (int step = share * 4; step < chunks; step += 4 * SHARE * AHEAD)
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (i && step + i * 4 * SHARE >= chunks) break;
            multiply_piece(pieces[i]);
            ask(pieces[i]);
        }

#pragma unroll
    for (int i = 0; i < TILES * 4; i++) total[i / 4][0][i % 4] += total[i / 4][1][i % 4];
    if (SHARE > 1) {
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
            partials[(warp * TILES + tile) * 32 + lane] = {total[tile][0][0], total[tile][0][1], total[tile][0][2],
                                                           total[tile][0][3]};
        __syncthreads();
    }
    if (begin >= columns) return;
    const u16* const its_bias = bias + expert * (columns * SIDES) + begin + lane / 4;
    const float above = bias ? widen(its_bias[0]) : 0.f, below = bias ? widen(its_bias[SIDES == 2 ? columns : 8]) : 0.f;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        if (tile % SHARE != share) continue;
        float(&sums)[4] = total[tile][0];
        if (SHARE > 1) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums[i] = 0.f;
#pragma unroll
            for (int of = 0; of < SHARE; of++) {
                const float4 part = partials[((warp - share + of) * TILES + tile) * 32 + lane];
                sums[0] += part.x, sums[1] += part.y, sums[2] += part.z, sums[3] += part.w;
            }
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
}
