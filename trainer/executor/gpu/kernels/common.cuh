// What all kernels share: the words of CUDA C without NVIDIA's headers, indices,
// and conversions that copy bits.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef __CUDA__
#include "host.cuh" // the same words for g++: see internal/cudatest
#else
// Kernels have names without C++ decoration.
#define KERNEL(threads) extern "C" __attribute__((global)) __attribute__((launch_bounds(threads))) void
#define DEVICE static __attribute__((device)) __attribute__((always_inline)) inline
#define SHARED __attribute__((shared))

#define BARRIER() __syncthreads()
#define THREAD_X __nvvm_read_ptx_sreg_tid_x()
#define BLOCK_X __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_Y __nvvm_read_ptx_sreg_ctaid_y()
#define BLOCK_Z __nvvm_read_ptx_sreg_ctaid_z()
#define BLOCKS_X __nvvm_read_ptx_sreg_nctaid_x()
#define THREADS_X __nvvm_read_ptx_sreg_ntid_x()
#endif

// Each thread takes elements that lie one grid apart, so that the size of the
// grid changes no result. n is below 2^31, and so is the size of the grid.
#define EACH(i, n) for (u32 i = BLOCK_X * THREADS_X + THREAD_X; i < (n); i += BLOCKS_X * THREADS_X)

DEVICE u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
DEVICE u64 bits_of(double x) { return __builtin_bit_cast(u64, x); }
DEVICE float float_of(u32 x) { return __builtin_bit_cast(float, x); }
DEVICE double double_of(u64 x) { return __builtin_bit_cast(double, x); }

// The root is correctly rounded in both types.
DEVICE float root(float x) { return __nvvm_sqrt_rn_f(x); }
DEVICE double root(double x) { return __nvvm_sqrt_rn_d(x); }

// fused rounds x*y+z once.
DEVICE double fused(double x, double y, double z) { return __builtin_fma(x, y, z); }
DEVICE float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }

template <typename T> DEVICE bool is_nan(T x) { return x != x; }

// Go's built-in functions: NaN if an operand is NaN, and -0 is less than +0.
template <typename T> DEVICE T larger(T a, T b) {
	if (is_nan(a) || is_nan(b)) {
		return a + b;
	}
	if (a == b) {
		return a == T(0) ? a + b : a;
	}
	return a > b ? a : b;
}
template <typename T> DEVICE T smaller(T a, T b) {
	if (is_nan(a) || is_nan(b)) {
		return a + b;
	}
	if (a == b) {
		return a == T(0) ? -(-a - b) : a;
	}
	return a < b ? a : b;
}

// A Divider divides numbers below 2^31 by a product and a shift (Granlund and
// Montgomery, "Division by invariant integers using multiplication", 1994).
struct Divider {
	u32 by, factor, shift;
};
DEVICE Divider divider(u32 by) {
	u32 shift = by > 1 ? 63 - __builtin_clz(by - 1) : 31;
	return Divider{by, (u32)((1ULL << shift) / by + 1), shift};
}
DEVICE u32 operator/(u32 x, Divider d) { return (u32)((u64)x * d.factor >> d.shift); }

// Defines a kernel for both types: NAME_f32 and NAME_f64.
#define BOTH(MACRO) MACRO(float, f32) MACRO(double, f64)
