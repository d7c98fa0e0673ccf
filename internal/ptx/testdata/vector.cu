// Kernels without shared memory.
#include "cuda.h"

extern "C" __global__ void add(float *z, const float *x, const float *y, int n) {
	int i = blockIdx_x * blockDim_x + threadIdx_x;
	if (i < n)
		z[i] = x[i] + y[i];
}

// A grid-stride loop with an explicit fma.
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n) {
	for (int i = blockIdx_x * blockDim_x + threadIdx_x; i < n; i += gridDim_x * blockDim_x)
		y[i] = __builtin_fmaf(a, x[i], y[i]);
}

extern "C" __global__ void scale4(float4 *y, const float4 *x, float a, int n) {
	int i = blockIdx_x * blockDim_x + threadIdx_x;
	if (i < n)
		y[i] = x[i] * a;
}

extern "C" __global__ void bytes(uchar4 *y, const uchar4 *x, double2 *d, int n) {
	int i = blockIdx_x * blockDim_x + threadIdx_x;
	if (i < n) {
		uchar4 v = x[i];
		y[i] = v.wzyx;
		double2 r = {(double)v.x / 3.0, (double)v.y - 0.5};
		d[i] = r;
	}
}

// Lanes leave the loop after different numbers of rounds.
extern "C" __global__ void collatz(unsigned *steps, int n) {
	int i = blockIdx_x * blockDim_x + threadIdx_x;
	if (i >= n)
		return;
	unsigned long long v = i + 1;
	unsigned count = 0;
	while (v != 1) {
		if (v & 1)
			v = 3 * v + 1;
		else
			v >>= 1;
		count++;
	}
	steps[i] = count;
}

__device__ __noinline__ float polynomial(float x, const float *c, int n) {
	float r = 0;
	for (int i = 0; i < n; i++)
		r = __builtin_fmaf(r, x, c[i]);
	return r;
}

__constant__ float coefficients[5] = {0.25f, -1.5f, 2.0f, 0.125f, 7.0f};

// Half of the threads call a function that reads a constant table.
extern "C" __global__ void horner(float *y, const float *x, int n) {
	int i = blockIdx_x * blockDim_x + threadIdx_x;
	if (i < n)
		y[i] = i & 1 ? polynomial(x[i], coefficients, 5) : -x[i];
}

__device__ unsigned total = 5;
__device__ float largest[2] = {-1.0f, 2.5f};

extern "C" __global__ void histogram(unsigned *bins, const unsigned char *x, int n) {
	int i = blockIdx_x * blockDim_x + threadIdx_x;
	if (i < n) {
		__nvvm_atom_add_gen_i((int *)&bins[x[i] & 7], 1);
		__nvvm_atom_add_gen_i((int *)&total, x[i]);
	}
}

// An array that stays in local memory, because its index is not constant.
extern "C" __global__ void local(int *y, const int *x, int n) {
	int i = blockIdx_x * blockDim_x + threadIdx_x;
	int a[16];
	for (int j = 0; j < 16; j++)
		a[j] = j * i;
	if (i < n) {
		a[x[i] & 15] += 1000;
		y[i] = a[(x[i] + i) & 15];
	}
}
