// Compiled for the device by NVRTC when the program runs. No header is needed.
//
// Every index that comes from memory is checked against the bounds that the host passes: a wrong one gives zeros, never
// an access outside.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define FIRST (blockIdx.x * (u64)blockDim.x + threadIdx.x)
#define STRIDE (gridDim.x * (u64)blockDim.x)

// One column of a batch: row r of `out` is row `places[r].y` of the column in slot `places[r].x` of the window.
// A thread moves one unit, so neighbours read and write neighbouring units of a row.
template <typename Unit>
__device__ void gather_rows(
    const u8 *window, u64 slot_bytes, u32 slots, u64 column, u32 slot_rows,
    u32 row_units, const uint2 *places, u32 rows, u8 *out)
{
    u64 units = (u64)rows * row_units;
    for (u64 i = FIRST; i < units; i += STRIDE) {
        uint2 place = places[i / row_units];
        Unit value = {};
        if (place.x < slots && place.y < slot_rows) {
            const Unit *from = (const Unit *)(window + place.x * slot_bytes + column);
            value = from[(u64)place.y * row_units + i % row_units];
        }
        ((Unit *)out)[i] = value;
    }
}

#define GATHER_ROWS(NAME, UNIT)                                                                       \
    extern "C" __global__ void NAME(                                                                  \
        const u8 *window, u64 slot_bytes, u32 slots, u64 column, u32 slot_rows,                        \
        u32 row_units, const uint2 *places, u32 rows, u8 *out)                                         \
    {                                                                                                 \
        gather_rows<UNIT>(window, slot_bytes, slots, column, slot_rows, row_units, places, rows, out); \
    }
GATHER_ROWS(gather_rows_16, uint4)
GATHER_ROWS(gather_rows_4, u32)
GATHER_ROWS(gather_rows_1, u8)

// Tokens: piece p = (slot, first token, destination, end of destination). Blocks of threads share out the pieces. A slot
// that is not one of the window's writes `pad`, which is how padding is said.
template <typename Id>
__device__ void gather_tokens(
    const u8 *window, u64 slot_bytes, u32 slots, u64 column, u32 slot_tokens,
    const uint4 *pieces, u32 count, u32 pad, u32 tokens, u32 *out)
{
    for (u32 p = blockIdx.x; p < count; p += gridDim.x) {
        uint4 piece = pieces[p];
        const Id *from = (const Id *)(window + piece.x * slot_bytes + column);
        for (u32 to = piece.z + threadIdx.x; to < piece.w && to < tokens; to += blockDim.x) {
            u64 token = (u64)piece.y + (to - piece.z);
            out[to] = piece.x < slots && token < slot_tokens ? from[token] : pad;
        }
    }
}

#define GATHER_TOKENS(NAME, ID)                                                                       \
    extern "C" __global__ void NAME(                                                                  \
        const u8 *window, u64 slot_bytes, u32 slots, u64 column, u32 slot_tokens,                      \
        const uint4 *pieces, u32 count, u32 pad, u32 tokens, u32 *out)                                 \
    {                                                                                                 \
        gather_tokens<ID>(window, slot_bytes, slots, column, slot_tokens, pieces, count, pad, tokens, out); \
    }
GATHER_TOKENS(gather_tokens_u16, u16)
GATHER_TOKENS(gather_tokens_u32, u32)

// How an image is mixed with another of its batch: value = weight * own + (1 - weight) * partner, and the partner's
// alone inside the box.
struct Mix { u32 partner; float weight; u32 top, bottom, left, right; };

__device__ u16 to_bf16(float value)
{
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16) | 0x40;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

__device__ void store(float *to, float value) { *to = value; }
__device__ void store(u16 *to, float value) { *to = to_bf16(value); }

// Images [count, height, width, 3] of bytes to floats [count, 3, height, width], or with the channels last.
template <typename Out>
__device__ void normalize(
    const u8 *in, u32 count, u32 height, u32 width, u32 channels_first,
    float scale0, float scale1, float scale2, float bias0, float bias1, float bias2,
    const Mix *mixes, Out *out)
{
    float scale[3] = {scale0, scale1, scale2};
    float bias[3] = {bias0, bias1, bias2};
    u64 pixels = (u64)height * width;
    u64 values = count * pixels * 3;
    for (u64 i = FIRST; i < values; i += STRIDE) {
        u64 n = i / (pixels * 3);
        u64 rest = i % (pixels * 3);
        u64 pixel = channels_first ? rest % pixels : rest / 3;
        u32 c = channels_first ? rest / pixels : rest % 3;
        float value = fmaf((float)in[(n * pixels + pixel) * 3 + c], scale[c], bias[c]);
        if (mixes) {
            Mix mix = mixes[n];
            if (mix.partner < count) {
                u32 y = pixel / width, x = pixel % width;
                bool inside = y >= mix.top && y < mix.bottom && x >= mix.left && x < mix.right;
                float weight = inside ? 0.0f : mix.weight;
                float other = fmaf((float)in[(mix.partner * pixels + pixel) * 3 + c], scale[c], bias[c]);
                value = fmaf(weight, value - other, other);
            }
        }
        store(out + i, value);
    }
}

#define NORMALIZE(NAME, OUT)                                                                          \
    extern "C" __global__ void NAME(                                                                  \
        const u8 *in, u32 count, u32 height, u32 width, u32 channels_first,                            \
        float s0, float s1, float s2, float b0, float b1, float b2, const Mix *mixes, OUT *out)        \
    {                                                                                                 \
        normalize<OUT>(in, count, height, width, channels_first, s0, s1, s2, b0, b1, b2, mixes, out);  \
    }
NORMALIZE(normalize_f32, float)
NORMALIZE(normalize_bf16, u16)

// Keeps one thread busy for `nanoseconds`: a training step of known length.
extern "C" __global__ void spin(u64 nanoseconds)
{
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

// Adds value times (position + 1) of all 32-bit words to `sum`, so that a word at the wrong place shows.
extern "C" __global__ void checksum(const u32 *words, u64 count, u64 *sum)
{
    u64 own = 0;
    for (u64 i = FIRST; i < count; i += STRIDE) own += (u64)words[i] * (i + 1);
    atomicAdd(sum, own);
}
