// Copies, by words of 4 and 8 bytes: they compute no new numbers.
#include "common.cuh"

#define FILL(T, S) \
	KERNEL(256) fill_##S(T *out, T x, u32 n) { EACH(i, n) out[i] = x; }

// Five dimensions of n elements in all, the last one innermost. Either side is
// read or written by strides, from element first on.
#define DIMENSIONS u32 n, u32 n1, u32 n2, u32 n3, u32 n4, u32 first, u32 s0, u32 s1, u32 s2, u32 s3, u32 s4
#define PLACE(at, i) \
	u32 q3 = i / n4, i4 = i - q3 * n4, q2 = q3 / n3, i3 = q3 - q2 * n3; \
	u32 q1 = q2 / n2, i2 = q2 - q1 * n2, i0 = q1 / n1, i1 = q1 - i0 * n1; \
	u32 at = first + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4;
#define READ(T, S) \
	KERNEL(256) read_##S(T *out, const T *a, DIMENSIONS) { \
		EACH(i, n) { PLACE(at, i) out[i] = a[at]; } \
	}
#define WRITE(T, S) \
	KERNEL(256) write_##S(T *out, const T *a, DIMENSIONS) { \
		EACH(i, n) { PLACE(at, i) out[at] = a[i]; } \
	}

// A transposed matrix, in tiles of 32 x 32 that both sides access in order. A
// row of the tile has one element more, so that its columns lie in separate
// banks.
#define TRANSPOSE(T, S) \
	KERNEL(256) transpose_##S(T *out, const T *a, u32 rows, u32 columns) { \
		SHARED static T tile[32][33]; \
		u32 x = THREAD_X % 32, y = THREAD_X / 32; \
		u32 row = BLOCK_Y * 32, column = BLOCK_X * 32; \
		a += (u64)BLOCK_Z * rows * columns; \
		out += (u64)BLOCK_Z * rows * columns; \
		for (u32 k = y; k < 32; k += 8) \
			if (row + k < rows && column + x < columns) tile[k][x] = a[(row + k) * columns + column + x]; \
		BARRIER(); \
		for (u32 k = y; k < 32; k += 8) \
			if (column + k < columns && row + x < rows) out[(column + k) * rows + row + x] = tile[x][k]; \
	}

#define WORDS(MACRO) MACRO(u32, b32) MACRO(u64, b64)
WORDS(FILL)
WORDS(READ)
WORDS(WRITE)
WORDS(TRANSPOSE)
