// Kernels that are wrong on purpose, one for each kind of fault that valgrind must find,
// and one that is right.
#include "common.cuh"

// The sums of blocks of 64. The last barrier keeps the next block away from shared memory.
#define BLOCK_SUMS(NAME, MEET) \
	KERNEL(64) NAME(float *out, const float *a) { \
		SHARED static float some[64]; \
		some[THREAD_X] = a[BLOCK_X * 64 + THREAD_X]; \
		BARRIER(); \
		for (u32 half = 32; half > 0; half /= 2) { \
			if (THREAD_X < half) some[THREAD_X] += some[THREAD_X + half]; \
			MEET; \
		} \
		if (THREAD_X == 0) out[BLOCK_X] = some[0]; \
		BARRIER(); \
	}
BLOCK_SUMS(right, BARRIER())
BLOCK_SUMS(missing_barrier, )

KERNEL(64) wrong_address(float *out, const float *a) { out[BLOCK_X * 64 + THREAD_X + 1] = a[BLOCK_X * 64 + THREAD_X]; }

// The address is right, and nobody has written there.
KERNEL(64) unset_value(float *out, const float *a) {
	if (out[THREAD_X] > 0) out[THREAD_X] = a[THREAD_X];
}

KERNEL(64) early_end(float *out, const float *a) {
	if (THREAD_X < 7) return;
	BARRIER();
	out[THREAD_X] = a[THREAD_X];
}

KERNEL(64) no_memory(float *out, const float *a) { *(float *)(u64)(16 + THREAD_X * 4) = a[0]; }
