// Products of matrices and of a matrix and a vector.
#include "team.cuh"
#include "tile.cuh"

// out = op(A) op(B) + bias for m x n results. The operands lie row-major: A is
// (m, k), or (k, m) if it is read transposed (the name's first letter is t); B is
// (k, n) or (n, k). BLOCK_Z counts count*parts results: for each of count pairs
// of matrices, the sums of parts parts of k, which have size elements each. A
// bias has one element per column; with biased 0 it is not read.
#define PRODUCT(NAME, T, R, TURN_A, TURN_B) \
	KERNEL(256) NAME(T *out, const T *a, const T *b, const T *bias, u32 m, u32 n, u32 k, u32 parts, u32 size, u32 biased) { \
		u32 pair = BLOCK_Z / parts, begin = BLOCK_Z % parts * size, end = k - begin < size ? k : begin + size; \
		a += (u64)pair * m * k; \
		b += (u64)pair * k * n; \
		out += (u64)BLOCK_Z * m * n; \
		tile_product<T, R, !TURN_A, !TURN_B>(begin, end, \
			[=](u32 i, u32 l) { return i < m ? TURN_A ? a[l * m + i] : a[i * k + l] : T(0); }, \
			[=](u32 l, u32 j) { return j < n ? TURN_B ? b[j * k + l] : b[l * n + j] : T(0); }, \
			[=](u32 i, u32 j, T sum) { if (i < m && j < n) out[i * n + j] = biased ? sum + bias[j] : sum; }); \
	}
#define PRODUCTS(SIZE, T, S, R) \
	PRODUCT(SIZE##_nn_##S, T, R, false, false) \
	PRODUCT(SIZE##_nt_##S, T, R, false, true) \
	PRODUCT(SIZE##_tn_##S, T, R, true, false) \
	PRODUCT(SIZE##_tt_##S, T, R, true, true)
PRODUCTS(product, float, f32, 4)
PRODUCTS(product, double, f64, 4)
PRODUCTS(large_product, float, f32, 8) // tiles of 128 x 128

// The sums of parts, in their order: out[i] = (a[i] + a[n+i]) + a[2n+i] + ... Each of
// count results has its parts one after the other.
#define PARTS(T, S) \
	KERNEL(256) parts_##S(T *out, const T *a, const T *bias, u32 n, u32 size, u32 columns, u32 parts, u32 biased) { \
		EACH(i, n) { \
			const T *from = a + (u64)(i / size) * parts * size + i % size; \
			T sum = from[0]; \
			for (u32 p = 1; p < parts; p++) sum += from[(u64)p * size]; \
			out[i] = biased ? sum + bias[i % columns] : sum; \
		} \
	}
BOTH(PARTS)

// y = op(A) x, added in double by teams. Element (i, k) of op(A) lies at i*down + k*along.
#define MATVEC(T, S) \
	KERNEL(256) matvec_##S(T *y, const T *a, const T *x, u32 m, u32 k, u32 down, u32 along, u32 lanes, u32 across) { \
		SHARED static double shared[256]; \
		Team t = make_team(lanes, across); \
		EACH_ROW(row, t, m) { \
			double sum = 0; \
			for (u32 i = t.lane; row < m && i < k; i += t.lanes) sum += (double)a[row * down + i * along] * (double)x[i]; \
			sum = team_sum(shared, t, sum); \
			if (row < m && t.lane == 0) y[row] = (T)sum; \
		} \
	}
BOTH(MATVEC)
