package cpu

func addVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] + b[i]
	}
}

func addVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = a[i] + s
	}
}

func subVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] - b[i]
	}
}

func subSV[T float](out []T, s T, b []T) {
	b = b[:len(out)]
	for i := range out {
		out[i] = s - b[i]
	}
}

func mulVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] * b[i]
	}
}

func mulVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = a[i] * s
	}
}

func divVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] / b[i]
	}
}

func divVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = a[i] / s
	}
}

func divSV[T float](out []T, s T, b []T) {
	b = b[:len(out)]
	for i := range out {
		out[i] = s / b[i]
	}
}

// The comparisons return 1 and 0 without a branch, which the processor would
// mispredict for random operands.

func lessVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] < b[i])
	}
}

func upToVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] <= b[i])
	}
}

func lessVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] < s)
	}
}

func upToVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] <= s)
	}
}

func moreVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] > s)
	}
}

func fromVS[T float](out, a []T, s T) {
	a = a[:len(out)]
	for i := range out {
		out[i] = one[T](a[i] >= s)
	}
}

func minVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = min(a[i], b[i])
	}
}

func maxVV[T float](out, a, b []T) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = max(a[i], b[i])
	}
}
