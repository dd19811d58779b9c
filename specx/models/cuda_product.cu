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
// bf16), PER_MULTIPROCESSOR (blocks at a time).

typedef unsigned short u16;  // an element, as its bits
typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(64) TensorMap {
    u64 opaque[16];
};

constexpr int NODES = 64;                        // rows of x, the missing ones read as 0
constexpr int WIDTH = 64;                        // inputs in a line of 128 bytes
constexpr int GROUPS = ROWS / 64;                // warp groups that multiply
constexpr int THREADS = 128 * GROUPS + 32;
constexpr int OUTPUTS = GATED ? ROWS / 2 : ROWS; // of a block
constexpr u32 LINE = WIDTH * 2;
constexpr u32 WEIGHT_SLICE = ROWS * LINE, X_SLICE = NODES * LINE;
constexpr u32 PIECE = SLICES * (WEIGHT_SLICE + X_SLICE);
constexpr u32 SUMS = (ROWS + 4) * 4;             // bytes of a node's sums; 4 more, for the banks

#if HALF
#define FORMAT "f16"
#else
#define FORMAT "bf16"
#endif

// The name of shared memory in instructions.
__device__ __forceinline__ u32 shared(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// Barriers in shared memory.

__device__ __forceinline__ void init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive_and_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(barrier), "r"(parity) : "memory");
}

// All blocks of a cluster.
__device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Everything that kernels in front wrote is there.
__device__ __forceinline__ void wait_for_kernel_in_front() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The box at (input, row), 64 inputs wide, to shared memory.
__device__ __forceinline__ void load(u32 to, const TensorMap& map, int input, int row, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(input), "r"(row), "r"(barrier)
        : "memory");
}

// The same, of what nobody reads again soon.
__device__ __forceinline__ void load_once(u32 to, const TensorMap& map, int input, int row,
                                          u32 barrier, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&map), "r"(input), "r"(row), "r"(barrier),
        "l"(policy) : "memory");
}

// Lines of 128 bytes in groups of 8, swizzled, for the tensor cores.
__device__ __forceinline__ u64 operand(u32 at) {
    return static_cast<u64>((at & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// sums[64 rows, 64 nodes] += a[64 rows, 16 inputs] · b[64 nodes, 16 inputs], by a warp group.
__device__ __forceinline__ void multiply(float (&d)[32], u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." FORMAT "." FORMAT
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31},"
        " %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
          "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn." FORMAT "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float widen(u16 element) {
#if HALF
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(element));
    return wide;
#else
    return __uint_as_float(static_cast<u32>(element) << 16);
#endif
}

__device__ __forceinline__ float rounded(float x) {
    return widen(static_cast<u16>(pack(x, 0.f)));
}

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

// The map of the weight has boxes of OUTPUTS rows, that of x of NODES.
// bias [columns], or [2 columns] where GATED, residual [nodes, columns]: null, or added.
extern "C" __global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR)
product(const __grid_constant__ TensorMap weight_map, const __grid_constant__ TensorMap x_map,
        u16* out, const u16* bias, const u16* residual, int nodes, int columns, int pieces) {
    extern __shared__ unsigned char memory[];
    __shared__ alignas(8) u64 full[STAGES], empty[STAGES];
    const u32 base = (shared(memory) + 1023) & ~1023u;  // the swizzle goes by addresses
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tile = blockIdx.x / SPLIT, part = blockIdx.x % SPLIT;
    const int begin = pieces * part / SPLIT, count = pieces * (part + 1) / SPLIT - begin;
    const bool multiplies = warp < 4 * GROUPS;

    asm volatile("griddepcontrol.launch_dependents;");
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            init(shared(&full[stage]), 1);
            init(shared(&empty[stage]), GROUPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    float sums[32] = {};
    if (multiplies) {
        for (int i = 0; i < count; i++) {
            const int stage = i % STAGES;
            const u32 weight = base + stage * PIECE, x = weight + SLICES * WEIGHT_SLICE;
            const u32 rows = weight + warp / 4 * (64 * LINE);
            wait(shared(&full[stage]), i / STAGES & 1);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int slice = 0; slice < SLICES; slice++)
#pragma unroll
                for (int at = 0; at < static_cast<int>(LINE); at += 32)
                    multiply(sums, operand(rows + slice * WEIGHT_SLICE + at),
                             operand(x + slice * X_SLICE + at));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (threadIdx.x % 128 == 0) arrive(shared(&empty[stage]));
        }
        wait_for_kernel_in_front();  // whose residual these threads read themselves
    } else {
        u64 once;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
        const auto load_weight = [&](int i) {
            const int stage = i % STAGES;
            const u32 barrier = shared(&full[stage]);
            if (lane == 0) arrive_and_expect(barrier, PIECE);
            __syncwarp();
            if (lane < SLICES) {
                const u32 to = base + stage * PIECE + lane * WEIGHT_SLICE;
                const int input = ((begin + i) * SLICES + lane) * WIDTH, row = tile * OUTPUTS;
                load_once(to, weight_map, input, row, barrier, once);
                if (GATED)
                    load_once(to + OUTPUTS * LINE, weight_map, input, columns + row, barrier, once);
            }
        };
        const auto load_x = [&](int i) {
            const int stage = i % STAGES;
            const u32 to = base + stage * PIECE + SLICES * WEIGHT_SLICE + lane * X_SLICE;
            const int input = ((begin + i) * SLICES + lane) * WIDTH;
            if (lane < SLICES) load(to, x_map, input, 0, shared(&full[stage]));
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
