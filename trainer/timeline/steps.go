package timeline

import (
	"fmt"
	"strconv"
	"strings"
)

// Steps is the half-open interval [Start, End) of steps, counted from 0. The
// zero value contains none.
type Steps struct {
	Start, End uint64
}

// ParseSteps reads "A:B": the steps from A, inclusive, to B, exclusive. Both
// are decimal numbers and A is less than B.
func ParseSteps(s string) (Steps, error) {
	first, end, ok := strings.Cut(s, ":")
	if !ok {
		return Steps{}, fmt.Errorf("steps %q: want START:END, such as 10:12 for the steps 10 and 11", s)
	}
	var steps Steps
	var err error
	if steps.Start, err = parseStep(first); err != nil {
		return Steps{}, fmt.Errorf("steps %q: start %w", s, err)
	}
	if steps.End, err = parseStep(end); err != nil {
		return Steps{}, fmt.Errorf("steps %q: end %w", s, err)
	}
	if steps.Start >= steps.End {
		return Steps{}, fmt.Errorf("steps %q: no step: the end is exclusive and must be above the start", s)
	}
	return steps, nil
}

// Contains reports whether step is in s.
func (s Steps) Contains(step uint64) bool { return s.Start <= step && step < s.End }

func (s Steps) String() string { return fmt.Sprintf("%d:%d", s.Start, s.End) }

func parseStep(s string) (uint64, error) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q is not a whole number", s)
		}
	}
	if s == "" {
		return 0, fmt.Errorf("is missing")
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return n, nil
}
