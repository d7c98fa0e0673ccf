package timeline

import (
	"strings"
	"testing"
)

func TestParseSteps(t *testing.T) {
	for s, want := range map[string]Steps{
		"0:1": {0, 1}, "10:12": {10, 12}, "007:8": {7, 8}, "0:18446744073709551615": {0, 1<<64 - 1},
	} {
		if got, err := ParseSteps(s); got != want || err != nil {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"": "want START:END", "5": "want START:END", ":": "start is missing", "3:": "end is missing", ":3": "start is missing",
		"a:3": `start "a" is not a whole number`, "-1:3": `"-1" is not`, "1:+3": `"+3" is not`, "1:2:3": `end "2:3" is not`,
		"1 :2": `"1 " is not`, "3:3": "no step", "4:3": "no step", "0:18446744073709551616": `end "18446744073709551616" is too large`,
	} {
		got, err := ParseSteps(s)
		if err == nil || !strings.Contains(err.Error(), want) || got != (Steps{}) {
			t.Errorf("%q: %v, %v; want %q", s, got, err, want)
		}
	}
}

func TestStepsAreHalfOpen(t *testing.T) {
	s := Steps{2, 4}
	for step, want := range []bool{false, false, true, true, false} {
		if s.Contains(uint64(step)) != want {
			t.Errorf("step %d: want %v", step, want)
		}
	}
	if (Steps{}).Contains(0) {
		t.Error("no steps contain step 0")
	}
}

func FuzzParseSteps(f *testing.F) {
	for _, s := range []string{"0:1", "10:12", "", ":", "1:", "-1:2", "1:1", "1:2:3", "18446744073709551616:1", "\x00:é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		steps, err := ParseSteps(s)
		if err != nil {
			if steps != (Steps{}) || !strings.HasPrefix(err.Error(), "steps ") {
				t.Fatalf("%q: %v, %v", s, steps, err)
			}
			return
		}
		if !steps.Contains(steps.Start) || !steps.Contains(steps.End-1) || steps.Contains(steps.End) {
			t.Fatalf("%q: %v", s, steps)
		}
		if again, err := ParseSteps(steps.String()); again != steps || err != nil {
			t.Fatalf("%q: %v again is %v, %v", s, steps, again, err)
		}
	})
}
