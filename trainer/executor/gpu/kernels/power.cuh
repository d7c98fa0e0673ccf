// Powers in double precision.
#pragma once
#include "math.cuh"

#define TWO_THIRDS 0x1.5555555555555p-1
#define TWO_THIRDS_LOW 0x1.5555555555555p-55
#define LN2_LOWEST -0x1.8cff81a12a17ep-85 // what LN2_HIGH and LN2_LOW lack

// A Pair is the sum of two numbers, of which the second is small.
struct Pair {
	double high, low;
};

// sum_of adds numbers of which the first is not the smaller one.
DEVICE Pair sum_of(double a, double b) {
	double s = a + b;
	return Pair{s, b - (s - a)};
}

// long_log returns the logarithm of a positive finite number with about 65 bits.
DEVICE Pair long_log(double x) {
	i64 scaled = 0;
	if (bits_of(x) < 0x0010000000000000) {
		x *= 18014398509481984.0;
		scaled = 54;
	}
	u64 b = bits_of(x);
	i64 k = (i64)(b - 0x3fe6a09e667f3bcd) >> 52;
	double f = double_of(b - ((u64)k << 52)) - 1, n = (double)(k - scaled);
	// s = f / (2+f), and log(1+f) = 2s (1 + z/3 + z^2/5 + ...) with z = s^2.
	Pair d = sum_of(2, f);
	double s = f / d.high, s_low = fused(-s, d.low, fused(-s, d.high, f)) / d.high;
	double z = s * s, z_low = fused(2 * s, s_low, fused(s, s, -z));
	double r = 2.0 / 25;
	r = fused(r, z, 2.0 / 23);
	r = fused(r, z, 2.0 / 21);
	r = fused(r, z, 2.0 / 19);
	r = fused(r, z, 2.0 / 17);
	r = fused(r, z, 2.0 / 15);
	r = fused(r, z, 2.0 / 13);
	r = fused(r, z, 2.0 / 11);
	r = fused(r, z, 2.0 / 9);
	r = fused(r, z, 2.0 / 7);
	r = fused(r, z, 2.0 / 5);
	// q = 2 z/3 + r z^2, then 2s + s q.
	double third = z * TWO_THIRDS;
	double third_low = fused(z, TWO_THIRDS, -third) + fused(z, TWO_THIRDS_LOW, z_low * TWO_THIRDS);
	Pair q = sum_of(third, fused(r * z, z, third_low));
	double cubic = s * q.high, cubic_low = fused(s, q.high, -cubic) + fused(s, q.low, s_low * q.high);
	Pair m = sum_of(2 * s, cubic);
	m.low += fused(2, s_low, cubic_low);
	// n ln(2) in three parts, of which the first product is exact.
	double whole = n * LN2_HIGH;
	if (n == 0) {
		return sum_of(m.high, m.low);
	}
	Pair sum = sum_of(whole, n * LN2_LOW);
	sum.low += fused(n, LN2_LOWEST, fused(n, LN2_LOW, -(n * LN2_LOW)));
	Pair all = sum_of(sum.high, m.high);
	return sum_of(all.high, all.low + (sum.low + m.low));
}

// power_of_positive returns a^y for a positive finite a other than 1 and a y that is
// a number.
DEVICE double power_of_positive(double a, double y) {
	Pair l = long_log(a);
	double e = y * l.high;
	if (!(e < 709.79)) {
		return INFINITE;
	}
	if (e < -745.14) {
		return 0;
	}
	double low = fused(y, l.low, fused(y, l.high, -e));
	i64 k;
	double p = exponent_parts(e, &k), r = 1 + fused(1 + p, low, p);
	i64 half = k >> 1; // twice a smaller power, because 2^k may not be a normal number
	return r * power_of_two(half) * power_of_two(k - half);
}

// power_of returns x^y, with the special cases of Go's math.Pow.
DEVICE double power_of(double x, double y) {
	if (y == 0 || x == 1) {
		return 1;
	}
	if (is_nan(x) || is_nan(y)) {
		return x + y;
	}
	double a = double_of(bits_of(x) & 0x7fffffffffffffff), size = double_of(bits_of(y) & 0x7fffffffffffffff);
	bool whole = size >= 9007199254740992.0 || (double)(i64)y == y; // of y
	bool odd = size < 9007199254740992.0 && whole && ((i64)y & 1);
	double e = 1; // if a is 1, also if y is infinite
	if (a == 0 || a == INFINITE) {
		e = (a == 0) == (y > 0) ? 0 : INFINITE;
	} else if (a != 1) {
		e = power_of_positive(a, y);
	}
	if (bits_of(x) >> 63) {
		if (!whole && a != 0 && a < INFINITE) {
			return NOT_A_NUMBER;
		}
		e = odd ? -e : e;
	}
	return e;
}
