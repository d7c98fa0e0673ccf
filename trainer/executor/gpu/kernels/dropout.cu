// Dropout with the numbers of package random.
#include "common.cuh"

// stream is key and name of a random.Stream. Element i is kept if the i-th 16
// bits of the stream are not below lowest. A thread takes eight elements, which
// is what one call of the generator suffices for.
#define DROPOUT(T, S) \
	KERNEL(256) dropout_##S(T *out, const T *x, const u32 *stream, T scale, u32 n, u32 groups, u32 lowest) { \
		u32 key0 = stream[0], key1 = stream[1], name0 = stream[2], name1 = stream[3]; \
		EACH(group, groups) { \
			u32 a = group, b = 0, c = name0, d = name1, k0 = key0, k1 = key1; \
			for (u32 round = 0; round < 10; round++) { \
				u64 p = 0xD2511F53ULL * a, q = 0xCD9E8D57ULL * c; \
				a = (u32)(q >> 32) ^ b ^ k0; \
				b = (u32)q; \
				c = (u32)(p >> 32) ^ d ^ k1; \
				d = (u32)p; \
				k0 += 0x9E3779B9; \
				k1 += 0xBB67AE85; \
			} \
			for (u32 k = 0, i = group * 8; k < 8 && i < n; k++, i++) { \
				u32 word = k < 4 ? k < 2 ? a : b : k < 6 ? c : d, number = word >> (k % 2 * 16) & 0xffff; \
				out[i] = number >= lowest ? x[i] * scale : T(0); \
			} \
		} \
	}
BOTH(DROPOUT)
