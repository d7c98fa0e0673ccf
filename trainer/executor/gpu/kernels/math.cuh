// Elementary functions from additions, products and bit operations.
//
// Those of float compute in double with the formulas of package cpu, product by
// product, and so return its bits. Those of double are within 2 units in the
// last place.
#pragma once
#include "common.cuh"

#define LOG2E 1.4426950408889634
#define LN2 0.6931471805599453
#define LN2_HIGH 0x1.62e42fe000000p-1 // the first 29 bits, so that a product with an exponent is exact
#define LN2_LOW 0x1.f473de6af278fp-30
#define TO_WHOLE 6755399441055744.0 // 1.5 * 2^52: adding and subtracting it rounds to a whole number
#define INFINITE double_of(0x7ff0000000000000)
#define NOT_A_NUMBER double_of(0x7ff8000000000001)

// ---- double ----

// exponent_parts returns p = e^r - 1 and k such that e^x = 2^k (1+p).
DEVICE double exponent_parts(double x, i64 *k) {
	double t = fused(x, LOG2E, TO_WHOLE), whole = t - TO_WHOLE;
	*k = (i64)(bits_of(t) - bits_of(TO_WHOLE));
	double r = fused(-whole, LN2_HIGH, x);
	r = fused(-whole, LN2_LOW, r);
	// Taylor's series up to r^14 for |r| <= ln(2)/2.
	double q = 1.0 / 87178291200;
	q = fused(q, r, 1.0 / 6227020800);
	q = fused(q, r, 1.0 / 479001600);
	q = fused(q, r, 1.0 / 39916800);
	q = fused(q, r, 1.0 / 3628800);
	q = fused(q, r, 1.0 / 362880);
	q = fused(q, r, 1.0 / 40320);
	q = fused(q, r, 1.0 / 5040);
	q = fused(q, r, 1.0 / 720);
	q = fused(q, r, 1.0 / 120);
	q = fused(q, r, 1.0 / 24);
	q = fused(q, r, 1.0 / 6);
	q = fused(q, r, 1.0 / 2);
	return fused(q * r, r, r);
}

// power_of_two returns 2^k for -1022 <= k <= 1023.
DEVICE double power_of_two(i64 k) { return double_of((u64)(k + 1023) << 52); }

DEVICE double exp_of(double x) {
	if (!(x < 709.79)) {
		return x > 709.7827128933841 ? INFINITE : x;
	}
	if (x < -745.14) {
		return 0;
	}
	i64 k;
	double p = exponent_parts(x, &k), y = 1 + p;
	i64 half = k >> 1; // twice a smaller power, because 2^k may not be a normal number
	return y * power_of_two(half) * power_of_two(k - half);
}

DEVICE double expm1_of(double x) {
	if (!(x < 709)) {
		return is_nan(x) ? x : exp_of(x);
	}
	if (x < -40) {
		return -1;
	}
	if (x == 0) {
		return x;
	}
	i64 k;
	double p = exponent_parts(x, &k), s = power_of_two(k);
	return fused(s, p, s - 1);
}

// log_mantissa returns log(1+f) + low for a mantissa 1+f between sqrt(1/2) and
// sqrt(2).
DEVICE double log_mantissa(double f, double low) {
	double s = f / (2 + f), z = s * s;
	double r = 2.0 / 23;
	r = fused(r, z, 2.0 / 21);
	r = fused(r, z, 2.0 / 19);
	r = fused(r, z, 2.0 / 17);
	r = fused(r, z, 2.0 / 15);
	r = fused(r, z, 2.0 / 13);
	r = fused(r, z, 2.0 / 11);
	r = fused(r, z, 2.0 / 9);
	r = fused(r, z, 2.0 / 7);
	r = fused(r, z, 2.0 / 5);
	r = fused(r, z, 2.0 / 3);
	r = r * z; // log(1+f) = 2s + s r, and 2s = f - s f
	double half = 0.5 * f * f; // 2s = f - f*f/2 + s*f*f/2
	return f - (half - fused(s, half + r, low));
}

// log_normal returns log(x) + correction; x is a positive normal number that was
// multiplied by 2^scaled.
DEVICE double log_normal(double x, i64 scaled, double correction) {
	u64 b = bits_of(x);
	i64 k = (i64)(b - 0x3fe6a09e667f3bcd) >> 52;
	double f = double_of(b - ((u64)k << 52)) - 1, n = (double)(k - scaled);
	double log = log_mantissa(f, fused(n, LN2_LOW, correction));
	return fused(n, LN2_HIGH, log);
}

DEVICE double log_of(double x) {
	if (!(x > 0 && x < INFINITE)) {
		return x == 0 ? -INFINITE : x > 0 || is_nan(x) ? x : NOT_A_NUMBER;
	}
	if (bits_of(x) < 0x0010000000000000) {
		return log_normal(x * 18014398509481984.0, 54, 0);
	}
	return log_normal(x, 0, 0);
}

DEVICE double log1p_of(double x) {
	if (!(x > -1 && x < INFINITE)) {
		return x == -1 ? -INFINITE : x > 0 || is_nan(x) ? x : NOT_A_NUMBER;
	}
	if (x > -0.29 && x < 0.41) {
		return x == 0 ? x : log_mantissa(x, 0);
	}
	double y = 1 + x;
	double lost = x > 1 ? 1 - (y - x) : x - (y - 1); // of the rounded sum
	return log_normal(y, 0, lost / y);
}

DEVICE double log2_of(double x) {
	if (!(x > 0 && x < INFINITE)) {
		return log_of(x);
	}
	i64 scaled = 0;
	if (bits_of(x) < 0x0010000000000000) {
		x *= 18014398509481984.0;
		scaled = 54;
	}
	u64 b = bits_of(x);
	i64 k = (i64)(b - 0x3fe6a09e667f3bcd) >> 52;
	double log = log_mantissa(double_of(b - ((u64)k << 52)) - 1, 0);
	return fused(log, LOG2E, (double)(k - scaled));
}

DEVICE double tanh_of(double x) {
	double a = double_of(bits_of(x) & 0x7fffffffffffffff);
	if (!(a < 22)) {
		return is_nan(x) ? x : x < 0 ? -1 : 1;
	}
	if (a < 1e-8) {
		return x;
	}
	if (a < 0.5) {
		// Lambert's continued fraction, x / (1 + z/(3 + z/(5 + ...))) up to 15, as
		// x - x z e/b: e and b are sums of positive numbers.
		double z = x * x, e0 = 0, e1 = 1, b0 = 1, b1 = 3 + z;
#pragma unroll
		for (int n = 5; n <= 15; n += 2) {
			double e = fused(n, e1, z * e0), b = fused(n, b1, z * b0);
			e0 = e1;
			e1 = e;
			b0 = b1;
			b1 = b;
		}
		return fused(-x, z * e1 / b1, x);
	}
	double t = 1 - 2 / (expm1_of(2 * a) + 2);
	return x < 0 ? -t : t;
}

DEVICE double sigmoid_of(double x) { return x < -709 ? 0 : 1 / (1 + exp_of(-x)); }

DEVICE double softplus_of(double x) { return x > 40 ? x : log1p_of(exp_of(x)); }

// ---- float ----

// widen converts normal and non-finite numbers to double. Zero and subnormal
// numbers become numbers between 2^-127 and 2^-126.
DEVICE double widen(float x) {
	u64 u = bits_of(x);
	if ((u & 0x7f800000) == 0x7f800000) {
		return x;
	}
	return double_of((u & 0x80000000) << 32 | (((u & 0x7fffffff) << 29) + (896ULL << 52)));
}

// tiny reports whether |x| is below a bound, which is given by its bits.
DEVICE bool tiny(float x, u32 bound) { return (bits_of(x) & 0x7fffffff) < bound; }

#define BELOW_ROUNDING 0x33000000 // 2^-25
#define BELOW_CUBE 0x39000000     // 2^-13
#define TANH_IS_ONE 0x411051ec    // 9.02
#define SUBNORMAL 0x00800000

// short_parts returns s and p such that e^x-1 = s*p + (s-1).
DEVICE double short_parts(double x, double *s) {
	double t = x * LOG2E + TO_WHOLE, k = t - TO_WHOLE, r = x - k * LN2, r2 = r * r;
	double a = 1 + r * (1.0 / 2);
	double b = 1.0 / 6 + r * (1.0 / 24);
	double c = 1.0 / 120 + r * (1.0 / 720);
	double d = 1.0 / 5040 + r * (1.0 / 40320);
	double q = a + r2 * (b + r2 * (c + r2 * d));
	*s = double_of((bits_of(t) + 1023) << 52);
	return r * q;
}

DEVICE float exp_of(float x) {
	double v = widen(x), s, p;
	if (!(v < 89)) {
		return is_nan(x) ? x : (float)INFINITE;
	}
	if (v < -104) {
		return 0;
	}
	p = short_parts(v, &s);
	return (float)(s + s * p);
}

DEVICE float expm1_of(float x) {
	double v = widen(x), s, p;
	if (!(v < 89)) {
		return is_nan(x) ? x : (float)INFINITE;
	}
	if (v < -20) {
		return -1;
	}
	if (tiny(x, BELOW_ROUNDING)) {
		return x;
	}
	p = short_parts(v, &s);
	return (float)(s * p + (s - 1));
}

DEVICE float tanh_of(float x) {
	u32 u = bits_of(x), size = u & 0x7fffffff;
	if (size - BELOW_CUBE >= TANH_IS_ONE - BELOW_CUBE) {
		if (size < BELOW_CUBE || is_nan(x)) {
			return x;
		}
		return x < 0 ? -1 : 1;
	}
	double v = double_of((u64)(u & 0x80000000) << 32 | (((u64)size << 29) + (896ULL << 52)));
	double t = v * v;
	double p = 0.99999999905863057 + t * (0.13785355974552311 + t * (0.0040084983614930295 +
		t * (3.1588809322241243e-5 + t * 5.0761211510339754e-8)));
	double q = 1 + t * (0.47118688382701725 + t * (0.027737474740099538 + t * (0.00042073875469200629 +
		t * (1.617464548713993e-6 + t * 7.3742182799759097e-10))));
	return (float)(v * p / q);
}

DEVICE float sigmoid_of(float x) {
	double v = -widen(x), s, p;
	if (!(v < 104)) {
		return is_nan(x) ? x : 0;
	}
	if (v < -40) {
		return 1;
	}
	p = short_parts(v, &s);
	return (float)(1 / (1 + (s + s * p)));
}

// short_log returns the logarithm of (1+u)/(1-u) for |u| <= 0.172.
DEVICE double short_log(double u) {
	double u2 = u * u, a = 1.0 / 7 + u2 * (1.0 / 9 + u2 * (1.0 / 11));
	return 2 * (u * (1 + u2 * (1.0 / 3 + u2 * (1.0 / 5 + u2 * a))));
}

DEVICE double short_log_normal(double v) {
	u64 b = bits_of(v);
	i64 k = (i64)(b - 0x3fe6a09e667f3bcd) >> 52;
	double m = double_of(b - ((u64)k << 52));
	return (double)k * LN2 + short_log((m - 1) / (m + 1));
}

#define LARGEST_FLOAT 3.4028234663852886e38

DEVICE float log_of(float x) {
	double v = widen(x);
	if (!(v > 0 && v <= LARGEST_FLOAT) || tiny(x, SUBNORMAL)) {
		return (float)log_of((double)x);
	}
	return (float)short_log_normal(v);
}

DEVICE float log1p_of(float x) {
	double v = widen(x);
	if (!(v > -1 && v <= LARGEST_FLOAT)) {
		return (float)log1p_of((double)x);
	}
	if (v > -0.25 && v < 0.4) {
		return tiny(x, BELOW_ROUNDING) ? x : (float)short_log(v / (2 + v));
	}
	return (float)short_log_normal(1 + v);
}

DEVICE float log2_of(float x) { return (float)log2_of((double)x); }

DEVICE float softplus_of(float x) {
	double v = widen(x), s, p;
	if (!(v <= 30)) {
		return x;
	}
	if (v < -104) {
		return 0;
	}
	p = short_parts(v, &s);
	double e = s + s * p;
	return (float)(e < 0.4 ? short_log(e / (2 + e)) : short_log_normal(1 + e));
}

// power_of returns x^y, with the special cases of Go's math.Pow.
DEVICE float power_of(float x, float y) {
	if (y == 0 || x == 1) {
		return 1;
	}
	if (is_nan(x) || is_nan(y)) {
		return x + y;
	}
	double a = double_of(bits_of((double)x) & 0x7fffffffffffffff), w = y;
	double size = double_of(bits_of(w) & 0x7fffffffffffffff);
	bool whole = size >= 9007199254740992.0 || (double)(i64)w == w; // of y
	bool odd = size < 9007199254740992.0 && whole && ((i64)w & 1);
	double e = exp_of(w * log_of(a)); // a is 0 or infinite: so is e, or its inverse
	if (a == 1) {
		e = 1; // also if y is infinite
	}
	if ((bits_of(x) >> 31) != 0) {
		if (!whole && a != 0 && a < INFINITE) {
			return (float)NOT_A_NUMBER;
		}
		e = odd ? -e : e;
	}
	return (float)e;
}
