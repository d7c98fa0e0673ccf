// A product of two matrices that are read by functions. A block of 256 threads
// computes a tile of the result, each thread R x R elements of it.
#pragma once
#include "common.cuh"

#define DEPTH 16 // terms that lie in shared memory at a time
#define ALIGNED __attribute__((aligned(16)))

// Four neighbours in shared memory, read together.
typedef float Four32 __attribute__((vector_size(16), aligned(16)));
typedef double Four64 __attribute__((vector_size(32), aligned(16)));
DEVICE Four32 four(const float *x) { return *(const Four32 *)x; }
DEVICE Four64 four(const double *x) { return *(const Four64 *)x; }

// tile_product computes, for each element (i, j) of this block's tile, the sum
// of a(i, k) b(k, j) over k from begin to end, and calls store(i, j, sum). The
// sum begins at 0 and adds one product after the other, in ascending order of k,
// each fused with its addition. So its bits do not depend on the tiles.
//
// a(i, k) and b(k, j) return 0 outside the matrices. With a_along neighbouring
// threads read neighbours along k, otherwise along i; b_along likewise for j.
//
// A thread has elements in groups of four, 64 apart, so that neighbouring threads
// read neighbouring words of shared memory. It reads the next terms while it
// computes with the present ones.
template <typename T, u32 R, bool a_along, bool b_along, typename A, typename B, typename Store>
DEVICE void tile_product(u32 begin, u32 end, A a, B b, Store store) {
	constexpr u32 edge = 16 * R;
	SHARED static ALIGNED T left[DEPTH][edge + 4], right[DEPTH][edge + 4];
	u32 id = THREAD_X, row = BLOCK_Y * edge, column = BLOCK_X * edge;
	u32 down = id / 16 * 4, across = id % 16 * 4;
	T sum[R][R], next_a[R], next_b[R];
#pragma unroll
	for (u32 i = 0; i < R; i++) {
#pragma unroll
		for (u32 j = 0; j < R; j++) {
			sum[i][j] = 0;
		}
	}
	auto read = [&](u32 k0) __attribute__((always_inline)) {
#pragma unroll
		for (u32 n = 0; n < R; n++) {
			u32 at = id + n * 256;
			u32 k = a_along ? at % DEPTH : at / edge, i = a_along ? at / DEPTH : at % edge;
			u32 l = b_along ? at / edge : at % DEPTH, j = b_along ? at % edge : at / DEPTH;
			next_a[n] = k0 + k < end ? a(row + i, k0 + k) : T(0);
			next_b[n] = k0 + l < end ? b(k0 + l, column + j) : T(0);
		}
	};
	read(begin);
	for (u32 k0 = begin; k0 < end; k0 += DEPTH) {
#pragma unroll
		for (u32 n = 0; n < R; n++) {
			u32 at = id + n * 256;
			left[a_along ? at % DEPTH : at / edge][a_along ? at / DEPTH : at % edge] = next_a[n];
			right[b_along ? at / edge : at % DEPTH][b_along ? at % edge : at / DEPTH] = next_b[n];
		}
		BARRIER();
		if (k0 + DEPTH < end) {
			read(k0 + DEPTH);
		}
#pragma unroll 4
		for (u32 k = 0; k < DEPTH; k++) {
			decltype(four((const T *)nullptr)) x[R / 4], y[R / 4];
#pragma unroll
			for (u32 i = 0; i < R / 4; i++) {
				x[i] = four(&left[k][i * 64 + down]);
				y[i] = four(&right[k][i * 64 + across]);
			}
#pragma unroll
			for (u32 i = 0; i < R; i++) {
#pragma unroll
				for (u32 j = 0; j < R; j++) {
					sum[i][j] = fused(x[i / 4][i % 4], y[j / 4][j % 4], sum[i][j]);
				}
			}
		}
		BARRIER();
	}
#pragma unroll
	for (u32 i = 0; i < R; i++) {
#pragma unroll
		for (u32 j = 0; j < R; j++) {
			store(row + i / 4 * 64 + down + i % 4, column + j / 4 * 64 + across + j % 4, sum[i][j]);
		}
	}
}
