package metrics

import "bytes"

// unitAfter interprets the unit that follows a number; end is the end of the
// number. The metric's value is the number itself, as for "4.50it/s". If
// inverse is true, the value is factor divided by the number, as for
// "120ms/step". If no known unit follows, name is "".
func unitAfter(t []byte, end int) (name string, factor float64, inverse bool) {
	if end < len(t) && t[end] == ' ' {
		end++
	}
	first, end := letters(t, end)
	if len(first) == 0 {
		return "", 0, false
	}
	switch {
	case end < len(t) && t[end] == '/':
		end++
	case bytes.HasPrefix(t[end:], []byte(" per ")):
		end += len(" per ")
	default:
		return "", 0, false
	}
	second, _ := letters(t, end)
	if name = rateOf(first, second); name != "" {
		return name, 1, false
	}
	if !countsSteps(second) {
		return "", 0, false
	}
	switch string(first) {
	case "s", "sec", "seconds":
		return Rate, 1, true
	case "ms":
		return Rate, 1e3, true
	case "us":
		return Rate, 1e6, true
	}
	return "", 0, false
}

// maxUnit is the maximum length in bytes of one word in a unit.
const maxUnit = 12

// letters returns the word at i and its end. It returns nil if there is no
// word, or if the word is longer than maxUnit.
func letters(t []byte, i int) ([]byte, int) {
	j := i
	for j < len(t) && isLetter(t[j]) {
		if j++; j-i > maxUnit {
			return nil, i
		}
	}
	return t[i:j], j
}

// perSecond returns the name of the metric that has the given unit, such as
// it/s. It returns "" if no metric has this unit.
func perSecond(unit []byte) string {
	what, time, ok := bytes.Cut(unit, []byte("/"))
	if !ok {
		return ""
	}
	return rateOf(what, time)
}

// rateOf returns the name of the metric whose unit is what/time, such as
// tokens/s. It returns "" if this is no rate of a training.
func rateOf(what, time []byte) string {
	switch string(time) {
	case "s", "sec", "second":
	default:
		return ""
	}
	if countsSteps(what) {
		return Rate
	}
	switch string(what) {
	case "sample", "samples", "example", "examples", "image", "images", "img", "token", "tokens", "tok", "word", "words", "seq", "seqs", "sequences", "frames":
		return string(what) + "_per_second"
	}
	return ""
}

// countsSteps reports whether a word means training steps.
func countsSteps(word []byte) bool {
	switch string(word) {
	case "it", "its", "iter", "iters", "iteration", "iterations", "step", "steps", "batch", "batches":
		return true
	}
	return false
}
