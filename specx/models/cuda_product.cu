// out[t, n] = sum over k of x[t, k] · weight[n, k], for up to 64 rows of x. For Hopper.
//
// A block takes ROWS rows of the weight. One warp asks the copy engine for pieces of the weight and
// of x, STAGES of them ahead; one or two warp groups multiply what has come. The weight does not
// depend on the kernel in front, so the first pieces are asked for before that one is done: what is
// limited by reading goes on reading across kernels. SPLIT blocks, a cluster, share the inputs of
// the same rows; each adds up a part of the result from the shared memory of all, always in the
// same order.
//
// Defined from outside: ROWS (64 or 128), STAGES, SLICES (of 64 inputs, in a piece), SPLIT,
// GATED (the weight has the rows of gate and up, and the result is SiLU(gate) · up), HALF (fp16, not
// bf16), BLOCKS (on a multiprocessor at a time).

#include "hopper.cuh"

constexpr int NODES = 64;                        // rows of x; missing ones read as 0
constexpr int WIDTH = 64;                        // inputs in a line of 128 bytes
constexpr int GROUPS = ROWS / 64;                // warp groups that multiply
constexpr int THREADS = 128 * GROUPS + 32;
constexpr int OUTPUTS = GATED ? ROWS / 2 : ROWS; // of a block
constexpr u32 WEIGHT_SLICE = ROWS * LINE, X_SLICE = NODES * LINE;
constexpr u32 PIECE = SLICES * (WEIGHT_SLICE + X_SLICE);
constexpr u32 SUMS = (ROWS + 4) * 4;             // bytes of a node's sums; 4 more, for the banks

// Four sums of all blocks of the cluster.
__device__ __forceinline__ float4 total(u32 at) {
    float4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (u32 block = 0; block < SPLIT; block++) {
        u32 there;
        float4 part;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(part.x), "=f"(part.y), "=f"(part.z), "=f"(part.w)
                     : "r"(there) : "memory");
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    return sum;
}

// Maps: the weight in boxes of OUTPUTS rows, x of NODES. bias [columns], or [2 columns] where GATED,
// residual [nodes, columns]: null, or added. pieces: of a row of the weight.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
product(const __grid_constant__ TensorMap weight_map, const __grid_constant__ TensorMap x_map,
        u16* out, const u16* bias, const u16* residual, int nodes, int columns, int pieces) {
    extern __shared__ unsigned char memory[];
    __shared__ alignas(8) u64 full[STAGES], empty[STAGES];
    const u32 base = aligned(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tile = blockIdx.x / SPLIT, part = blockIdx.x % SPLIT;
    const int first = pieces * part / SPLIT, count = pieces * (part + 1) / SPLIT - first;
    const bool multiplies = warp < 4 * GROUPS;

    let_next_kernel_come();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            init(shared(&full[stage]), 1);
            init(shared(&empty[stage]), GROUPS);
        }
        publish_barriers();
    }
    __syncthreads();

    float sums[32] = {};
    if (multiplies) {
        for (int i = 0; i < count; i++) {
            const int stage = i % STAGES;
            const u32 weight = base + stage * PIECE + warp / 4 * (64 * LINE);
            const u32 x = base + stage * PIECE + SLICES * WEIGHT_SLICE;
            wait(shared(&full[stage]), i / STAGES & 1);
            begin();
#pragma unroll
            for (int slice = 0; slice < SLICES; slice++)
#pragma unroll
                for (int at = 0; at < static_cast<int>(LINE); at += 32)
                    multiply(sums, operand(weight + slice * WEIGHT_SLICE + at),
                             operand(x + slice * X_SLICE + at));
            commit();
            finish();
            if (threadIdx.x % 128 == 0) arrive(shared(&empty[stage]));
        }
        wait_for_kernel_in_front();  // whose residual these threads read themselves
    } else {
        const auto load_weight = [&](int i) {
            const u32 to = base + i % STAGES * PIECE + lane * WEIGHT_SLICE;
            const u32 barrier = shared(&full[i % STAGES]);
            const int input = ((first + i) * SLICES + lane) * WIDTH, row = tile * OUTPUTS;
            if (lane == 0) arrive_and_expect(barrier, PIECE);
            __syncwarp();
            if (lane >= SLICES) return;
            load_once(to, weight_map, input, row, barrier);
            if (GATED) load_once(to + OUTPUTS * LINE, weight_map, input, columns + row, barrier);
        };
        const auto load_x = [&](int i) {
            const u32 to = base + i % STAGES * PIECE + SLICES * WEIGHT_SLICE + lane * X_SLICE;
            const int input = ((first + i) * SLICES + lane) * WIDTH;
            if (lane < SLICES) load(to, x_map, input, 0, shared(&full[i % STAGES]));
        };
        const int ahead = min(count, STAGES);
        for (int i = 0; i < ahead; i++) load_weight(i);
        wait_for_kernel_in_front();
        for (int i = 0; i < ahead; i++) load_x(i);
        for (int i = ahead; i < count; i++) {
            wait(shared(&empty[i % STAGES]), (i / STAGES - 1) & 1);
            load_weight(i);
            load_x(i);
        }
        __syncwarp();
    }

    __syncthreads();  // nobody reads the pieces any more: the sums take their place
    if (multiplies)
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const u32 node = i / 4 * 8 + lane % 4 * 2 + i % 2;
            const u32 row = warp * 16 + lane / 4 + i % 4 / 2 * 8;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(base + node * SUMS + row * 4), "f"(sums[i])
                         : "memory");
        }
    meet();

    constexpr int QUADS = OUTPUTS / 4, SHARE = NODES / SPLIT;
    for (int i = threadIdx.x; i < SHARE * QUADS; i += THREADS) {
        const int node = part * SHARE + i / QUADS, output = i % QUADS * 4;
        const int column = tile * OUTPUTS + output;
        if (node >= nodes || column >= columns) continue;
        const float4 own = total(base + node * SUMS + output * 4);
        float result[4] = {own.x, own.y, own.z, own.w};
        if (bias)
            for (int j = 0; j < 4; j++) result[j] += widen(bias[column + j]);
        if (GATED) {
            const float4 second = total(base + node * SUMS + (output + OUTPUTS) * 4);
            float up[4] = {second.x, second.y, second.z, second.w};
            for (int j = 0; j < 4; j++) {
                if (bias) up[j] += widen(bias[columns + column + j]);
                // Rounded where the modules round.
                const float gate = rounded(result[j]);
                result[j] = rounded(gate / (1.f + __expf(-gate))) * rounded(up[j]);
            }
        }
        const u64 at = static_cast<u64>(node) * columns + column;
        if (residual) {
            const ushort4 more = *reinterpret_cast<const ushort4*>(residual + at);
            result[0] += widen(more.x), result[1] += widen(more.y);
            result[2] += widen(more.z), result[3] += widen(more.w);
        }
        *reinterpret_cast<uint2*>(out + at) = {pack(result[0], result[1]), pack(result[2], result[3])};
    }
    meet();  // nobody reads the sums of a block that is gone
}
