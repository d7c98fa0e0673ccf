package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// maxNodes limits the number of nodes that a job may have.
const maxNodes = 65536

// counts expands a list of one number per node in Slurm's notation: "4(x2),2"
// becomes 4, 4, 2. It returns an error unless the list has exactly the given
// number of nodes.
func counts(text string, nodes int) ([]int, error) {
	malformed := func(why string) ([]int, error) {
		return nil, fmt.Errorf("%q is no list of numbers for %d nodes, such as 4(x2),2: %s", text, nodes, why)
	}
	var all []int
	for item := range strings.SplitSeq(text, ",") {
		value, times, repeated := strings.Cut(item, "(x")
		n, ok := number(value)
		if !ok {
			return malformed(fmt.Sprintf("%q is no number", value))
		}
		reps := 1
		if repeated {
			inner, closed := strings.CutSuffix(times, ")")
			if reps, ok = number(inner); !ok || !closed || reps < 1 {
				return malformed(fmt.Sprintf("%q is no number of repetitions", "(x"+times))
			}
		}
		if reps > nodes-len(all) {
			return malformed("it has more")
		}
		for range reps {
			all = append(all, n)
		}
	}
	if len(all) < nodes {
		return malformed(fmt.Sprintf("it has %d", len(all)))
	}
	return all, nil
}

// number parses a number of at most 7 digits, without a sign.
func number(text string) (int, bool) {
	if text == "" || len(text) > 7 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}
