// Hybrid tree attention where many rows share a key head: a part of the columns for 128 rows. For
// Hopper, with heads of 128 dimensions.
//
// One warp asks the copy engine for blocks of 128 keys and of their values, as many ahead as there
// is room for; two warp groups have 64 rows each. While the tensor cores multiply the weights of a
// block with its values, the weights of the next one are computed (FlashAttention-3, Shah et al.,
// 2024). The prefix does not depend on the kernel in front, so it is asked for before that is done.
// Three more warps clear, in blocks under a mask, the rows of values that no node sees.
//
// Columns are numbered in blocks of 128: first those of the prefix, then, under a mask, what is left
// of the prefix and the tree's own rows behind it.

#include "hopper.cuh"

constexpr int DIM = 128, COLUMNS = 128, GROUP_ROWS = 64, GROUPS = 2;
constexpr int THREADS = 128 * (GROUPS + 1);
constexpr int STAGES = 6;                    // blocks of keys or of values that are there at a time
constexpr int MASKED_COST = 3;               // of a block under a mask, in blocks without
constexpr int CLEANERS = 96;                 // threads
constexpr int WORDS = 2;                     // of a node's set, that are kept in shared memory
constexpr u32 SLAB = COLUMNS * LINE;         // 64 dimensions of a block
constexpr u32 BLOCK = 2 * SLAB;
constexpr u32 QUERY_SLAB = GROUP_ROWS * LINE;
constexpr u32 QUERIES = 2 * QUERY_SLAB;      // of a warp group
#define NOTHING __int_as_float(0xff800000)   // minus infinity

// The largest or the sum over the four threads that share a row.
__device__ __forceinline__ float largest(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float summed(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ void group_barrier(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// Warp groups take turns at the tensor cores: one multiplies while the other computes weights.
__device__ __forceinline__ void my_turn(int group) {
    asm volatile("bar.sync %0, 256;" ::"r"(GROUPS + 1 + group) : "memory");
}

__device__ __forceinline__ void your_turn(int group) {
    asm volatile("bar.arrive %0, 256;" ::"r"(GROUPS + 2 - group) : "memory");
}

// Which columns a row sees, as words of 64 bits: the prefix is words of ones in front of its set.
__device__ __forceinline__ u64 word_of(const u64* set, u64 stride, int words, int at) {
    const u64 word = set[min(max(at, 0), words - 1) * stride];  // no branch: all in flight
    return at < 0 ? ~0ull : at < words ? word : 0;
}

// Bits of 64 columns from `shift` on.
__device__ __forceinline__ u64 window(u64 low, u64 high, int shift) {
    return shift ? low >> shift | high << (64 - shift) : low;
}

// Which of 64 columns, the first of them `at` behind the prefix, any of the nodes sees. By a warp.
__device__ __forceinline__ u64 seen_by_any(const u64* visible, u64 node_stride, u64 word_stride,
                                           int nodes, int words, int at) {
    u64 bits = 0;
    for (int node = threadIdx.x % 32; node < nodes; node += 32) {
        const u64* set = visible + node * node_stride;
        bits |= window(word_of(set, word_stride, words, at >> 6),
                       word_of(set, word_stride, words, (at >> 6) + 1), at & 63);
    }
    const u64 high = __reduce_or_sync(~0u, static_cast<u32>(bits >> 32));
    return high << 32 | __reduce_or_sync(~0u, static_cast<u32>(bits));
}

// Where 16 bytes of a row of queries, or of the result, lie: lines of 128 bytes, swizzled.
__device__ __forceinline__ u32 chunk_at(u32 base, int row, int chunk) {
    return base + chunk / 8 * QUERY_SLAB + row * LINE + ((chunk % 8) ^ (row % 8)) * 16;
}

// q [heads, nodes, DIM], rows contiguous; maps of keys and values: [KV heads, capacity, DIM].
// prefix: one number. visible [nodes, words]: bit j of word w, that row prefix + 64 w + j is seen.
// out [splits, heads · nodes, DIM], lse [splits, heads · nodes] in base 2: parts, to be merged.
// rows: of a key head, head in group × node; scale: of scores, in base 2.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
attend(const __grid_constant__ TensorMap key_map, const __grid_constant__ TensorMap value_map,
       const u16* q, const u64* prefix_at, const u64* visible, u16* out, float* lse, float scale,
       int nodes, int rows, int words, u64 q_head, u64 q_node, u64 visible_node, u64 visible_word) {
    extern __shared__ unsigned char memory[];
    // Blocks that are there; that were read; of values that are there, but to be cleaned first.
    __shared__ alignas(8) u64 full[STAGES], empty[STAGES], raw[STAGES];
    __shared__ u64 sets[64 * WORDS];
    const u32 queries = aligned(memory), stages = queries + GROUPS * QUERIES;
    const int group = threadIdx.x / 128 - 1, lane = threadIdx.x % 32;
    const int kv_head = blockIdx.y, split = blockIdx.z, splits = gridDim.z;

    let_next_kernel_come();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            init(shared(&full[stage]), 1);
            init(shared(&empty[stage]), GROUPS);
            init(shared(&raw[stage]), 1);
        }
        publish_barriers();
    }
    __syncthreads();

    // Written before this forward pass began, so before the kernel in front.
    const int prefix = static_cast<int>(*prefix_at);
    const int whole = prefix / COLUMNS;  // blocks that need no mask
    const int end_of_tree = prefix + 64 * words;
    const int masked = (end_of_tree + COLUMNS - 1) / COLUMNS - whole;
    const u64 work = whole + MASKED_COST * masked;
    const auto block_at = [&](u64 done) {
        const int beyond = max(static_cast<int>(done) - whole, 0);
        return min(static_cast<int>(done), whole) + (beyond + MASKED_COST - 1) / MASKED_COST;
    };
    const int first = block_at(work * split / splits);
    const int count = block_at(work * (split + 1) / splits) - first;

    // Keys of a block come before the values of the one in front of it.
    const auto turn_of_values = [&](int i) { return i < count - 1 ? 2 * i + 2 : 2 * count - 1; };

    if (group < 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x >= 128 - CLEANERS) {
            // Rows of values that no node sees may hold anything, and a weight of 0 does not silence
            // a NaN: they are 0 before anybody multiplies them.
            wait_for_kernel_in_front();
            const int thread = threadIdx.x - (128 - CLEANERS);
            for (int block = max(first, whole), i = 0; block < first + count; block++, i++) {
                const u32 turn = turn_of_values(block - first);
                const u32 values = stages + turn % STAGES * BLOCK;
                u64 any[2];
#pragma unroll
                for (int half = 0; half < 2; half++)
                    any[half] = seen_by_any(visible, visible_node, visible_word, nodes, words,
                                            block * COLUMNS + 64 * half - prefix);
                wait(shared(&raw[i % STAGES]), i / STAGES & 1);
                for (int at = thread; at < 2 * COLUMNS * 8; at += CLEANERS) {
                    const int line = at / 8 % COLUMNS;
                    if ((line < 64 ? any[0] : any[1]) >> line % 64 & 1) continue;
                    const u32 to = values + at / (8 * COLUMNS) * SLAB + line * LINE + at % 8 * 16;
                    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0)
                                 : "memory");
                }
                publish_stores();
                asm volatile("bar.sync 5, %0;" ::"n"(CLEANERS) : "memory");
                if (thread == 0) arrive(shared(&full[turn % STAGES]));
            }
        } else if (threadIdx.x == 0) {
            int masked_values = 0;
            const auto load_block = [&](int turn, const TensorMap& map, int block, u64* barrier) {
                const u32 to = stages + turn % STAGES * BLOCK;
                if (turn >= STAGES) wait(shared(&empty[turn % STAGES]), (turn / STAGES - 1) & 1);
                if (block == max(first, whole)) wait_for_kernel_in_front();
                arrive_and_expect(shared(barrier), BLOCK);
                load(to, map, 0, block * COLUMNS, kv_head, shared(barrier));
                load(to + SLAB, map, 64, block * COLUMNS, kv_head, shared(barrier));
            };
            const auto load_values = [&](int i) {
                const int turn = turn_of_values(i);
                u64* there = &full[turn % STAGES];
                if (first + i >= whole) there = &raw[masked_values++ % STAGES];
                load_block(turn, value_map, first + i, there);
            };
            for (int i = 0; i < count; i++) {
                const int turn = i == 0 ? 0 : 2 * i - 1;
                load_block(turn, key_map, first + i, &full[turn % STAGES]);
                if (i > 0) load_values(i - 1);
            }
            if (count > 0) load_values(count - 1);
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int begin_row = blockIdx.x * (GROUPS * GROUP_ROWS) + group * GROUP_ROWS;
    const u32 own = queries + group * QUERIES;
    wait_for_kernel_in_front();
    constexpr int CHUNKS = DIM / 8, EACH = GROUP_ROWS * CHUNKS / 128;  // of 16 bytes; of a thread
    const int chunk = threadIdx.x % CHUNKS, begin_at = threadIdx.x % 128 / CHUNKS;
    uint4 query[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {  // all in flight at once
        const int row = min(begin_row + begin_at + i * (128 / CHUNKS), rows - 1);
        const u64 head = kv_head * (rows / nodes) + row / nodes;
        const u16* from = q + head * q_head + row % nodes * q_node + chunk * 8;
        query[i] = *reinterpret_cast<const uint4*>(from);
    }
    const int set_at = threadIdx.x % 128, set = min(set_at / words, nodes - 1);
    const u64 set_word = visible[set * visible_node + set_at % words * visible_word];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = begin_at + i * (128 / CHUNKS);
        const uint4 value = query[i];
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(chunk_at(own, at, chunk)),
                     "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
    }
    publish_stores();
    if (first + count > whole && words <= WORDS) {
        if (set_at < nodes * words) sets[set_at] = set_word;
        visible = sets, visible_node = words, visible_word = 1;
    }
    group_barrier(group);

    // A thread has two rows, 8 apart, and of each two neighbouring columns in every 8.
    const int upper = threadIdx.x % 128 / 32 * 16 + lane / 4;
    float result[DIM / 2], scores[COLUMNS / 2];
    u32 weights[COLUMNS / 4];
    float best[2] = {NOTHING, NOTHING}, total[2] = {0.f, 0.f}, decay[2];
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) result[i] = 0.f;

    u32 turn = 0;  // of the stages, in the order in which they are read
    const auto stage_at = [&](u32 which) { return stages + which % STAGES * BLOCK; };
    const auto await = [&] { wait(shared(&full[turn % STAGES]), turn / STAGES & 1); };
    const auto release = [&](u32 which) {
        if (threadIdx.x % 128 == 0) arrive(shared(&empty[which % STAGES]));
    };
    const auto score = [&](u32 keys_turn) {
        const u32 keys = stage_at(keys_turn);
        begin();
#pragma unroll
        for (int i = 0; i < DIM / 16; i++)
            multiply(scores, operand(own + i / 4 * QUERY_SLAB + i % 4 * 32),
                     operand(keys + i / 4 * SLAB + i % 4 * 32), i > 0);
        commit();
    };
    // Scores become weights relative to the best of their row so far.
    const auto weigh = [&](int block) {
        if (block >= whole) {
            const int at = (block * COLUMNS - prefix) >> 6, shift = (block * COLUMNS - prefix) & 63;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u64* set = visible + (begin_row + upper + 8 * half) % nodes * visible_node;
                u64 bits[3];
                for (int i = 0; i < 3; i++) bits[i] = word_of(set, visible_word, words, at + i);
                const u64 seen[2] = {window(bits[0], bits[1], shift),
                                     window(bits[1], bits[2], shift)};
                u32 own[COLUMNS / 32];  // from this thread's first column on
#pragma unroll
                for (int i = 0; i < COLUMNS / 32; i++)
                    own[i] = static_cast<u32>(seen[i / 2] >> i % 2 * 32) >> lane % 4 * 2;
#pragma unroll
                for (int i = 0; i < COLUMNS / 2; i++) {
                    const int column = i / 4 * 8 + i % 2;
                    if (i % 4 / 2 == half && !(own[column / 32] >> column % 32 & 1))
                        scores[i] = NOTHING;
                }
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float highest = NOTHING;
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i += 4)
                highest = fmaxf(highest, fmaxf(scores[i + 2 * half], scores[i + 2 * half + 1]));
            highest = fmaxf(best[half], largest(highest) * scale);
            const float shift = highest == NOTHING ? 0.f : highest;  // nothing seen yet
            decay[half] = exp2_of(best[half] - shift);
            best[half] = highest;
            float sum = 0.f;
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i += 4)
#pragma unroll
                for (int j = 2 * half; j < 2 * half + 2; j++) {
                    scores[i + j] = exp2_of(fmaf(scores[i + j], scale, -shift));
                    sum += scores[i + j];
                }
            total[half] = total[half] * decay[half] + sum;
        }
    };
    const auto gather = [&](u32 values_turn) {
        const u32 values = stage_at(values_turn);
        begin();
#pragma unroll
        for (int i = 0; i < COLUMNS / 16; i++)
            multiply(result, &weights[4 * i], operand(values + i * 2048, SLAB));
        commit();
    };
    const auto fade = [&] {
        if (!__any_sync(~0u, decay[0] != 1.f || decay[1] != 1.f)) return;
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) result[i] *= decay[i % 4 / 2];
    };
    const auto pack_weights = [&] {
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
    };

    if (count > 0) {
        if (group == 1) your_turn(group);
        await();
        my_turn(group);
        score(turn);
        your_turn(group);
        finish();
        release(turn++);
        weigh(first);
        pack_weights();
        await();
        for (int i = 1; i < count; i++) {
            const u32 keys_turn = turn++;
            my_turn(group);
            score(keys_turn);
            await();
            const u32 values_turn = turn++;
            gather(values_turn);
            your_turn(group);
            finish<1>();
            release(keys_turn);
            weigh(first + i);
            // Between weights and `finish`: across this loop the assembler does not move that up.
            await();
            finish();
            release(values_turn);
            fade();
            pack_weights();
        }
        gather(turn);
        finish();
    }

    // A row that saw no column: out 0, lse −inf, weight 0 in the merge.
    const u64 heads_and_nodes = static_cast<u64>(gridDim.y) * rows;
    const u64 part = split * heads_and_nodes + static_cast<u64>(kv_head) * rows;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float all = summed(total[half]);
        const float share = all == 0.f ? 0.f : 1.f / all;
        const int at = upper + 8 * half, row = begin_row + at;
        if (lane % 4 == 0 && row < rows) lse[part + row] = best[half] + log2_of(all);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            const u32 both = pack(result[4 * i + 2 * half] * share, result[4 * i + 2 * half + 1] * share);
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(chunk_at(own, at, i) + lane % 4 * 4),
                         "r"(both) : "memory");
        }
    }
    group_barrier(group);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = begin_at + i * (128 / CHUNKS), row = begin_row + at;
        uint4 value;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                     : "r"(chunk_at(own, at, chunk)) : "memory");
        if (row < rows) *reinterpret_cast<uint4*>(out + (part + row) * DIM + chunk * 8) = value;
    }
}
