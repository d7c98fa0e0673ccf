package timeline

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseSteps(t *testing.T) {
	for s, want := range map[string]Steps{
		"0:1": {{0, 1}}, "10:12": {{10, 12}}, "007:8": {{7, 8}}, "0:18446744073709551615": {{0, 1<<64 - 1}},
		"5": {{5, 6}}, "5,10:12": {{5, 6}, {10, 12}}, "9,2:4,9": {{9, 10}, {2, 4}, {9, 10}},
	} {
		if got, err := ParseSteps(s); !reflect.DeepEqual(got, want) || err != nil {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"": "step is missing", "a": `step "a" is not a whole number`, ":": "start is missing", "3:": "end is missing", ":3": "start is missing",
		"a:3": `start "a" is not a whole number`, "-1:3": `"-1" is not`, "1:+3": `"+3" is not`, "1:2:3": `end "2:3" is not`,
		"1 :2": `"1 " is not`, "3:3": "no step", "4:3": "no step", "0:18446744073709551616": `end "18446744073709551616" is too large`,
		"18446744073709551615": "too large", "1,": "step is missing", "1,,2": "step is missing", "1, 2": `" 2" is not`,
		strings.Repeat("1,", maxSpans) + "1": "more than 1000 parts",
	} {
		got, err := ParseSteps(s)
		if err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%q: %v, %v; want %q", s, got, err, want)
		}
	}
}

func TestStepsAreHalfOpen(t *testing.T) {
	s := Steps{{6, 7}, {2, 4}}
	for step, want := range []bool{false, false, true, true, false, false, true, false} {
		if s.Contains(uint64(step)) != want {
			t.Errorf("step %d: want %v", step, want)
		}
	}
	if s.First() != 2 {
		t.Errorf("the first is %d", s.First())
	}
	if (Steps{}).Contains(0) {
		t.Error("no steps contain step 0")
	}
}

func FuzzParseSteps(f *testing.F) {
	for _, s := range []string{"0:1", "10:12", "", ":", "1:", "-1:2", "1:1", "1:2:3", "18446744073709551616:1", "\x00:é", "1,3:5", "4,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		steps, err := ParseSteps(s)
		if err != nil {
			if steps != nil || !strings.HasPrefix(err.Error(), "steps ") {
				t.Fatalf("%q: %v, %v", s, steps, err)
			}
			return
		}
		for _, x := range steps {
			if x.start >= x.end || !steps.Contains(x.start) || !steps.Contains(x.end-1) {
				t.Fatalf("%q: %v", s, steps)
			}
		}
		if first := steps.First(); !steps.Contains(first) || first > 0 && steps.Contains(first-1) {
			t.Fatalf("%q: the first of %v is %d", s, steps, first)
		}
	})
}
