// Kernels whose threads work together.
#include "cuda.h"

#define TILE 16

// c = a*b of square matrices whose width is a multiple of 16.
extern "C" __global__ void matmul(float *c, const float *a, const float *b, int n) {
	__shared__ float ta[TILE][TILE], tb[TILE][TILE];
	int x = threadIdx_x, y = threadIdx_y;
	int row = blockIdx_y * TILE + y, column = blockIdx_x * TILE + x;
	float sum = 0;
	for (int k = 0; k < n; k += TILE) {
		ta[y][x] = a[row * n + k + x];
		tb[y][x] = b[(k + y) * n + column];
		__syncthreads();
		for (int j = 0; j < TILE; j++)
			sum = __builtin_fmaf(ta[y][j], tb[j][x], sum);
		__syncthreads();
	}
	c[row * n + column] = sum;
}

// One sum for each block, by halves.
extern "C" __global__ void reduce(float *sums, const float *x, int n) {
	extern __shared__ float part[];
	int t = threadIdx_x, i = blockIdx_x * blockDim_x + t;
	part[t] = i < n ? x[i] : 0.0f;
	__syncthreads();
	for (int half = blockDim_x / 2; half > 0; half /= 2) {
		if (t < half)
			part[t] += part[t + half];
		__syncthreads();
	}
	if (t == 0)
		sums[blockIdx_x] = part[0];
}

// One sum for each warp, without shared memory.
extern "C" __global__ void shuffle(float *sums, const float *x) {
	int i = blockIdx_x * blockDim_x + threadIdx_x;
	float v = x[i];
	for (int d = 16; d > 0; d /= 2)
		v += __nvvm_shfl_sync_down_f32(0xffffffff, v, d, 31);
	if ((threadIdx_x & 31) == 0)
		sums[i / 32] = v;
}

// Odd lanes take another way, and then all lanes meet in a vote.
extern "C" __global__ void ballot(unsigned *y, const int *x) {
	int i = threadIdx_x;
	int v = x[i];
	if (i & 1) {
		while (v > 10)
			v -= 7;
	}
	y[i] = __nvvm_vote_ballot_sync(0xffffffff, v > 5);
}
