// out[t, n] = sum over k of x[t, k] · weight[n, k], for up to 64 rows of x. For Hopper.
//
// A block takes tiles of 64 rows of the weight. One warp asks the copy engine for pieces of the
// weight and of x, STAGES of them ahead; a warp group multiplies what has come. The weight does not
// depend on the kernel in front, so the first pieces are asked for before that one is done: what is
// limited by reading goes on reading across kernels.
//
// There are two ways to spread tiles over multiprocessors:
//   `shared_sums`, for few tiles: SPLIT blocks, a cluster, share the inputs of a tile, and each adds
//   up a part of the result from the shared memory of all.
//   `stream`, for many: a block on each multiprocessor goes through the same number of tiles. The
//   rest is for those that are done first, because some are farther from the memory and up to a
//   tenth slower: a SPLITth of a tile at a time, whose sums go through memory.
// Sums are added in the same order always.
//
// Defined from outside: STAGES, SLICES (of 64 inputs, in a piece), SPLIT, GATED (the weight has the
// rows of gate and up, and the result is SiLU(gate) · up), HALF (fp16, not bf16).

#include "hopper.cuh"

constexpr int NODES = 64;                        // rows of x; missing ones read as 0
constexpr int ROWS = 64;                         // of the weight, in a tile
constexpr int WIDTH = 64;                        // inputs in a line of 128 bytes
constexpr int GROUP = 128, THREADS = GROUP + 32; // the warp group, and the warp that loads
constexpr int OUTPUTS = GATED ? ROWS / 2 : ROWS; // of a tile
constexpr int QUADS = OUTPUTS / 4;
constexpr u32 SLICE = ROWS * LINE;
constexpr u32 PIECE = SLICES * 2 * SLICE;        // of the weight, then of x
constexpr u32 SUMS = (ROWS + 4) * 4;             // bytes of a node's sums; 4 more, for the banks

// What becomes of the sums: bias [columns], or [2 columns] where GATED, residual [nodes, columns],
// null where there is none; out [nodes, columns].
struct Result {
    u16* out;
    const u16 *bias, *residual;
    int nodes, columns;
};

// What a tile consists of, and where its pieces lie in shared memory.
struct Pieces {
    const TensorMap &weight, &x;
    u32 base;
    u64 *full, *empty;
    int columns;

    __device__ __forceinline__ u32 weight_at(int i) const { return base + i % STAGES * PIECE; }
    __device__ __forceinline__ u32 x_at(int i) const { return weight_at(i) + SLICES * SLICE; }

    __device__ void init() const {
        for (int stage = 0; stage < STAGES; stage++) {
            ::init(shared(&full[stage]), 1);
            ::init(shared(&empty[stage]), 1);
        }
        publish_barriers();
    }

    // The i-th piece of a block is the `piece`-th of `tile`. By a warp.
    __device__ __forceinline__ void load_weight(int i, int tile, int piece) const {
        const u32 barrier = shared(&full[i % STAGES]);
        const int lane = threadIdx.x % 32, input = (piece * SLICES + lane) * WIDTH;
        if (lane == 0) arrive_and_expect(barrier, PIECE);
        __syncwarp();
        if (lane >= SLICES) return;
        const u32 to = weight_at(i) + lane * SLICE;
        load_once(to, weight, input, tile * OUTPUTS, barrier);
        if (GATED) load_once(to + SLICE / 2, weight, input, columns + tile * OUTPUTS, barrier);
    }

    __device__ __forceinline__ void load_x(int i, int piece) const {
        const int lane = threadIdx.x % 32, input = (piece * SLICES + lane) * WIDTH;
        if (lane < SLICES) load(x_at(i) + lane * SLICE, x, input, 0, shared(&full[i % STAGES]));
    }

    // When the piece before it in the same stage was multiplied.
    __device__ __forceinline__ void wait_for_room(int i) const {
        if (i >= STAGES) wait(shared(&empty[i % STAGES]), (i / STAGES - 1) & 1);
    }

    __device__ __forceinline__ void wait_for(int i) const {
        wait(shared(&full[i % STAGES]), i / STAGES & 1);
    }

    // Sums of the warp group: of this piece, or also of those before it where `add`.
    __device__ __forceinline__ void multiply(int i, float (&sums)[32], bool add) const {
        begin();
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++)
#pragma unroll
            for (int at = 0; at < static_cast<int>(LINE); at += 32)
                ::multiply(sums, operand(weight_at(i) + slice * SLICE + at),
                           operand(x_at(i) + slice * SLICE + at), add || slice + at > 0);
        commit();
        finish();
        if (threadIdx.x % GROUP == 0) arrive(shared(&empty[i % STAGES]));
    }
};

// Sums of the warp group to shared memory: a line of SUMS bytes for each node.
__device__ __forceinline__ void lay_out(u32 base, const float (&sums)[32]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const u32 node = i / 4 * 8 + lane % 4 * 2 + i % 2, row = warp * 16 + lane / 4 + i % 4 / 2 * 8;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(base + node * SUMS + row * 4), "f"(sums[i])
                     : "memory");
    }
}

// Four sums at the same place of `blocks` blocks of the cluster.
template <int blocks>
__device__ __forceinline__ float4 total(u32 at) {
    float4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (u32 block = 0; block < blocks; block++) {
        u32 there = at;
        float4 part;
        if (blocks > 1) asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(part.x), "=f"(part.y), "=f"(part.z), "=f"(part.w)
                     : "r"(there) : "memory");
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    return sum;
}

// The result of a tile for the nodes from `first` on, out of the sums that were laid out, by the
// first `threads` threads.
template <int blocks, int threads>
__device__ __forceinline__ void write(const Result& result, u32 base, int tile, int first, int nodes) {
    for (int i = threadIdx.x; i < nodes * QUADS; i += threads) {
        const int node = first + i / QUADS, output = i % QUADS * 4, column = tile * OUTPUTS + output;
        if (node >= result.nodes || column >= result.columns) continue;
        const float4 own = total<blocks>(base + node * SUMS + output * 4);
        float values[4] = {own.x, own.y, own.z, own.w};
        if (result.bias)
            for (int j = 0; j < 4; j++) values[j] += widen(result.bias[column + j]);
        if (GATED) {
            const float4 second = total<blocks>(base + node * SUMS + (output + OUTPUTS) * 4);
            float up[4] = {second.x, second.y, second.z, second.w};
            for (int j = 0; j < 4; j++) {
                if (result.bias) up[j] += widen(result.bias[result.columns + column + j]);
                // Rounded where the modules round.
                const float gate = rounded(values[j]);
                values[j] = rounded(gate / (1.f + __expf(-gate))) * rounded(up[j]);
            }
        }
        const u64 at = static_cast<u64>(node) * result.columns + column;
        if (result.residual) {
            const ushort4 more = *reinterpret_cast<const ushort4*>(result.residual + at);
            values[0] += widen(more.x), values[1] += widen(more.y);
            values[2] += widen(more.z), values[3] += widen(more.w);
        }
        *reinterpret_cast<uint2*>(result.out + at) = {pack(values[0], values[1]),
                                                      pack(values[2], values[3])};
    }
}

// Maps: the weight in boxes of OUTPUTS rows, x of NODES. pieces: of a tile.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
shared_sums(const __grid_constant__ TensorMap weight_map, const __grid_constant__ TensorMap x_map,
            const Result result, int pieces) {
    extern __shared__ unsigned char memory[];
    __shared__ alignas(8) u64 full[STAGES], empty[STAGES];
    const Pieces piece = {weight_map, x_map, aligned(memory), full, empty, result.columns};
    const int tile = blockIdx.x / SPLIT, part = blockIdx.x % SPLIT;
    const int first = pieces * part / SPLIT, count = pieces * (part + 1) / SPLIT - first;

    let_next_kernel_come();
    if (threadIdx.x == 0) piece.init();
    __syncthreads();
    float sums[32] = {};
    if (threadIdx.x < GROUP) {
        for (int i = 0; i < count; i++) {
            piece.wait_for(i);
            piece.multiply(i, sums, i > 0);
        }
        wait_for_kernel_in_front();  // whose residual these threads read themselves
    } else {
        const int ahead = min(count, STAGES);
        for (int i = 0; i < ahead; i++) piece.load_weight(i, tile, first + i);
        wait_for_kernel_in_front();
        for (int i = 0; i < ahead; i++) piece.load_x(i, first + i);
        for (int i = ahead; i < count; i++) {
            piece.wait_for_room(i);
            piece.load_weight(i, tile, first + i);
            piece.load_x(i, first + i);
        }
        __syncwarp();
    }
    __syncthreads();  // nobody reads the pieces any more: the sums take their place
    if (threadIdx.x < GROUP) lay_out(piece.base, sums);
    meet();
    write<SPLIT, THREADS>(result, piece.base, tile, part * (NODES / SPLIT), NODES / SPLIT);
    meet();  // nobody reads the sums of a block that is gone
}

// What the warp that loads says of a piece.
struct Note {
    int tile, part;  // tile −1: there are no more; part SPLIT: the whole tile
    bool is_last;    // of the tile, or of its part
};

// tiles: of which each block has `rounds`, before parts of the others are claimed. parts: float32,
// 64 · 64 for each part. counters: 2, and one for each tile that is claimed in parts; zeros, also
// behind the kernel.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
stream(const __grid_constant__ TensorMap weight_map, const __grid_constant__ TensorMap x_map,
       const Result result, int pieces, int tiles, int rounds, float4* parts, int* counters) {
    extern __shared__ unsigned char memory[];
    __shared__ alignas(8) u64 full[STAGES], empty[STAGES];
    __shared__ Note notes[STAGES];
    __shared__ bool completes;
    const Pieces piece = {weight_map, x_map, aligned(memory), full, empty, result.columns};
    const u32 layout = piece.base + STAGES * PIECE;
    const int fixed = rounds * gridDim.x, lane = threadIdx.x % 32;

    let_next_kernel_come();
    if (threadIdx.x == 0) piece.init();
    __syncthreads();
    if (threadIdx.x >= GROUP) {
        const auto note = [&](int i, int tile, int part, bool is_last) {
            if (lane == 0) notes[i % STAGES] = {tile, part, is_last};
        };
        const auto tile_of = [&](int i) { return blockIdx.x + i / pieces * gridDim.x; };
        const int count = rounds * pieces, ahead = min(count, STAGES);
        for (int i = 0; i < ahead; i++) {
            note(i, tile_of(i), SPLIT, (i + 1) % pieces == 0);
            piece.load_weight(i, tile_of(i), i % pieces);
        }
        wait_for_kernel_in_front();
        for (int i = 0; i < ahead; i++) piece.load_x(i, i % pieces);
        int i = ahead;
        for (; i < count; i++) {
            piece.wait_for_room(i);
            note(i, tile_of(i), SPLIT, (i + 1) % pieces == 0);
            piece.load_weight(i, tile_of(i), i % pieces);
            piece.load_x(i, i % pieces);
        }
        while (true) {
            int claimed = 0;
            if (lane == 0) claimed = atomicAdd(&counters[0], 1);
            claimed = __shfl_sync(~0u, claimed, 0);
            const int tile = fixed + claimed / SPLIT, part = claimed % SPLIT;
            if (tile >= tiles) break;
            const int end = pieces * (part + 1) / SPLIT;
            for (int at = pieces * part / SPLIT; at < end; at++, i++) {
                piece.wait_for_room(i);
                note(i, tile, part, at + 1 == end);
                piece.load_weight(i, tile, at);
                piece.load_x(i, at);
            }
        }
        piece.wait_for_room(i);
        if (lane == 0) {
            notes[i % STAGES].tile = -1;
            arrive(shared(&full[i % STAGES]));
            // The last one to claim nothing leaves the counters as they were.
            if (atomicAdd(&counters[1], 1) == gridDim.x - 1) counters[0] = counters[1] = 0;
        }
        return;
    }

    const auto group_barrier = [] { asm volatile("bar.sync 1, 128;" ::: "memory"); };
    float sums[32];
    bool add = false;
    wait_for_kernel_in_front();  // whose memory may be where the result goes
    for (int i = 0;; i++) {
        piece.wait_for(i);
        const Note note = notes[i % STAGES];
        if (note.tile < 0) break;
        piece.multiply(i, sums, add);
        add = !note.is_last;
        if (add) continue;
        if (note.part == SPLIT) {
            lay_out(layout, sums);
        } else {
            const int tile = note.tile - fixed;
            float4* own = parts + (tile * SPLIT + note.part) * (NODES * ROWS / 4) + threadIdx.x;
#pragma unroll
            for (int j = 0; j < 8; j++)
                own[j * GROUP] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
            __threadfence();
            group_barrier();
            if (threadIdx.x == 0) {
                completes = atomicAdd(&counters[2 + tile], 1) == SPLIT - 1;
                if (completes) counters[2 + tile] = 0;
            }
            group_barrier();
            if (!completes) continue;
            __threadfence();
            float all[32] = {};
            const float4* from = parts + tile * SPLIT * (NODES * ROWS / 4) + threadIdx.x;
#pragma unroll
            for (int part = 0; part < SPLIT; part++)
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const float4 more = __ldcg(from + part * (NODES * ROWS / 4) + j * GROUP);
                    all[4 * j] += more.x, all[4 * j + 1] += more.y;
                    all[4 * j + 2] += more.z, all[4 * j + 3] += more.w;
                }
            lay_out(layout, all);
        }
        group_barrier();
        write<1, GROUP>(result, layout, note.tile, 0, NODES);
        group_barrier();  // `layout` and `completes` are used again
    }
}
