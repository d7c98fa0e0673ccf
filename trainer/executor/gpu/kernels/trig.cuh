// Sine and cosine in double precision.
#pragma once
#include "math.cuh"

#define HALF_PI 0x1.921fb54442d18p+0
#define HALF_PI_LOW 0x1.1a62633145c07p-54

// The bits of 2/pi after 64 zeros.
__attribute__((constant)) static const u64 two_over_pi[20] = {
	0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
	0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
	0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
	0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
	0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
};

// An angle is high + low, at most pi/4 away from 0, plus quadrant times pi/2.
struct Angle {
	double high, low;
	u32 quadrant;
};

// window returns 64 bits of 2/pi.
DEVICE u64 window(u32 bit) {
	u32 word = bit / 64, shift = bit % 64;
	u64 high = two_over_pi[word], low = two_over_pi[word + 1];
	return shift == 0 ? high : high << shift | low >> (64 - shift);
}

DEVICE u64 high_product(u64 a, u64 b) { return __nvvm_mulhi_ull(a, b); }

// angle_of reduces a finite x >= 0. A larger x is a whole number m times 2^e, and is
// multiplied by 192 bits of 2/pi, as Payne and Hanek do ("Radian reduction for
// trigonometric functions", 1983): of these bits, those whose product with m is a
// multiple of 4 are left out. What is left is exact to 2^-126 of a quadrant, and no
// double is closer to a multiple of pi/2 than 2^-62.
DEVICE Angle angle_of(double x) {
	if (x <= HALF_PI / 2) {
		return Angle{x, 0, 0};
	}
	u64 b = bits_of(x), m = (b & 0x000fffffffffffff) | 0x0010000000000000;
	u32 first = (u32)(b >> 52) - 1075 + 62;
	u64 w0 = window(first), w1 = window(first + 64), w2 = window(first + 128);
	u64 r1 = m * w1, carry = high_product(m, w2), r0 = m * w0 + high_product(m, w1);
	r1 += carry;
	r0 += r1 < carry;
	u32 quadrant = (u32)(r0 >> 62);
	u64 high = r0 << 2 | r1 >> 62, low = r1 << 2;
	bool more = high >> 63; // than half a quadrant: count back from the next one
	if (more) {
		quadrant++;
		high = ~high;
		low = ~low;
	}
	u32 zeros = __builtin_clzll(high | 1);
	if (zeros > 0) {
		high = high << zeros | low >> (64 - zeros);
		low <<= zeros;
	}
	double unit = double_of((u64)(1023 - 53 - zeros) << 52);
	double h = (double)(high >> 11) * unit, l = (double)((high & 2047) << 42 | low >> 22) * (unit * 0x1p-53);
	double p = h * HALF_PI, rest = fused(h, HALF_PI, -p) + fused(h, HALF_PI_LOW, l * HALF_PI);
	return more ? Angle{-p, -rest, quadrant} : Angle{p, rest, quadrant};
}

// sine_within is the sine of an angle in quadrant 0: Taylor's series, plus what low
// adds.
DEVICE double sine_within(double x, double low) {
	double z = x * x;
	double p = 1.0 / 355687428096000;
	p = fused(p, z, -1.0 / 1307674368000);
	p = fused(p, z, 1.0 / 6227020800);
	p = fused(p, z, -1.0 / 39916800);
	p = fused(p, z, 1.0 / 362880);
	p = fused(p, z, -1.0 / 5040);
	p = fused(p, z, 1.0 / 120);
	p = fused(p, z, -1.0 / 6);
	return x + fused(x * z, p, fused(-0.5 * z, low, low));
}

DEVICE double cosine_within(double x, double low) {
	double z = x * x;
	double p = -1.0 / 6402373705728000;
	p = fused(p, z, 1.0 / 20922789888000);
	p = fused(p, z, -1.0 / 87178291200);
	p = fused(p, z, 1.0 / 479001600);
	p = fused(p, z, -1.0 / 3628800);
	p = fused(p, z, 1.0 / 40320);
	p = fused(p, z, -1.0 / 720);
	p = fused(p, z, 1.0 / 24);
	double half = 0.5 * z, one = 1 - half;
	double lost = (1 - one) - half + fused(0.5 * x, x, -half) * -1; // of 1 - x*x/2
	return one + fused(z * z, p, fused(-x, low, lost));
}

DEVICE double in_quadrant(Angle a, u32 quadrant) {
	double y = quadrant & 1 ? cosine_within(a.high, a.low) : sine_within(a.high, a.low);
	return quadrant & 2 ? -y : y;
}

DEVICE double sin_of(double x) {
	double size = double_of(bits_of(x) & 0x7fffffffffffffff);
	if (!(size < INFINITE)) {
		return NOT_A_NUMBER;
	}
	Angle a = angle_of(size);
	double y = in_quadrant(a, a.quadrant);
	return bits_of(x) >> 63 ? -y : y;
}

DEVICE double cos_of(double x) {
	double size = double_of(bits_of(x) & 0x7fffffffffffffff);
	if (!(size < INFINITE)) {
		return NOT_A_NUMBER;
	}
	Angle a = angle_of(size);
	return in_quadrant(a, a.quadrant + 1);
}

DEVICE float sin_of(float x) { return (float)sin_of((double)x); }
DEVICE float cos_of(float x) { return (float)cos_of((double)x); }
