// Sums and maxima along axes, dot products, sums of squares.
#include "team.cuh"

// The result has kept elements, each from n elements. Either lies by strides in
// up to three dimensions, the last one innermost.
#define REDUCED u32 kept, u32 k1, u32 k2, u32 ks0, u32 ks1, u32 ks2, u32 n, u32 n1, u32 n2, u32 ns0, u32 ns1, u32 ns2, u32 lanes, u32 across

DEVICE u32 place(u32 i, u32 n1, u32 n2, u32 s0, u32 s1, u32 s2) {
	u32 q = i / n2, r = q / n1;
	return r * s0 + (q - r * n1) * s1 + (i - q * n2) * s2;
}

// Each sum may be divided into parts of size elements. A team then writes the sum
// of a part to partial, and finish adds them.
#define SUM(T, S) \
	KERNEL(256) sum_##S(T *out, const T *a, double *partial, REDUCED, u32 parts, u32 size) { \
		SHARED static double shared[256]; \
		Team t = make_team(lanes, across); \
		EACH_ROW(row, t, kept * parts) { \
			u32 part = row / kept, at = row - part * kept, from = part * size, end = n - from < size ? n : from + size; \
			const T *x = a + place(at, k1, k2, ks0, ks1, ks2); \
			double sum = 0; \
			for (u32 i = from + t.lane; part < parts && i < end; i += t.lanes) sum += (double)x[place(i, n1, n2, ns0, ns1, ns2)]; \
			sum = team_sum(shared, t, sum); \
			if (part < parts && t.lane == 0) { \
				if (parts == 1) out[at] = (T)sum; \
				else partial[at * parts + part] = sum; \
			} \
		} \
	} \
	/* Each of rows results is the sum of n numbers, divided. */ \
	KERNEL(256) finish_##S(T *out, const double *partial, double divisor, u32 rows, u32 n, u32 lanes) { \
		SHARED static double shared[256]; \
		Team t = make_team(lanes, 0); \
		EACH_ROW(row, t, rows) { \
			double sum = 0; \
			for (u32 i = t.lane; row < rows && i < n; i += t.lanes) sum += partial[row * n + i]; \
			sum = team_sum(shared, t, sum); \
			if (row < rows && t.lane == 0) out[row] = (T)(sum / divisor); \
		} \
	}
BOTH(SUM)

#define MAX(T, S) \
	KERNEL(256) max_##S(T *out, const T *a, REDUCED) { \
		SHARED static T shared[256]; \
		Team t = make_team(lanes, across); \
		EACH_ROW(row, t, kept) { \
			const T *from = a + place(row, k1, k2, ks0, ks1, ks2); \
			T most = -(T)(double)double_of(0x7ff0000000000000); \
			for (u32 i = t.lane; row < kept && i < n; i += t.lanes) most = larger(most, from[place(i, n1, n2, ns0, ns1, ns2)]); \
			most = team_max(shared, t, most); \
			if (row < kept && t.lane == 0) out[row] = most; \
		} \
	}
BOTH(MAX)

#define DOT(T, S) \
	KERNEL(256) dot_##S(T *out, const T *a, const T *b, u32 n) { \
		SHARED static double shared[256]; \
		Team t = make_team(256, 0); \
		double sum = 0; \
		for (u32 i = t.lane; i < n; i += 256) sum += (double)a[i] * (double)b[i]; \
		sum = team_sum(shared, t, sum); \
		if (t.lane == 0) out[0] = (T)sum; \
	}
BOTH(DOT)

// The squares of each piece of size elements, added as optimizer.SumOfSquares
// does: four sums of every fourth element. Four threads take a piece.
#define SQUARES(T, S) \
	KERNEL(256) squares_##S(double *out, const T *g, u32 n, u32 size, u32 pieces) { \
		SHARED static double shared[256]; \
		Team t = make_team(4, 0); \
		EACH_ROW(piece, t, pieces) { \
			u32 from = piece * size, end = n - from < size ? n : from + size; \
			double sum = 0; \
			for (u32 i = from + t.lane; piece < pieces && i < end; i += 4) { \
				double x = (double)g[i]; \
				sum += x * x; \
			} \
			shared[THREAD_X] = sum; \
			BARRIER(); \
			double *s = shared + 4 * t.row; \
			if (piece < pieces && t.lane == 0) out[piece] = (s[0] + s[1]) + (s[2] + s[3]); \
			BARRIER(); \
		} \
	}
BOTH(SQUARES)
