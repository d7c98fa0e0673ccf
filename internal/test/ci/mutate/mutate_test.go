//go:build long

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each kind of change, and no other.
func TestMutants(t *testing.T) {
	const text = `package p

import "fmt"

func f(a, b int) (n [3]int, err error) {
	if a < b && !done {
		n[1] += a
	}
	defer g()
	for a = 0; ; a++ {
		break
	}
	x := a << 2
	fmt.Println(x)
	_, _ = g(), h
	_, a = g(), h
	return n, err
}
`
	all, err := mutantsOf("p.go", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, strings.TrimPrefix(m.String(), "p.go:"))
	}
	slices.Sort(got)
	want := []string{
		"10: `++` -> `--`",
		"10: `0` -> `1`",
		"10: `a = 0` -> `_ = 0`",
		"11: `break` -> `continue`",
		"13: `2` -> `3`",
		"13: `<<` -> `>>`",
		"14: `fmt.Println(x)` -> ``",
		"15: `_, _ = g(), h` -> ``",
		"16: `_, a = g(), h` -> `_, _ = g(), h`",
		"17: `err` -> `nil`",
		"6: `!done` -> `done`",
		"6: `<` -> `<=`",
		"6: `<` -> `>=`",
		"6: `a < b && !done` -> `!(a < b && !done)`",
		"6: `a < b && !done` -> `!done`",
		"6: `a < b && !done` -> `a < b`",
		"6: `a < b && !done` -> `false && (a < b && !done)`",
		"7: `+=` -> `-=`",
		"7: `1` -> `2`",
		"7: `n[1] += a` -> `_ = a`",
		"9: `defer g()` -> ``",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, m := range all {
		if changed := string(m.apply()); strings.Count(changed, "\n") != strings.Count(text, "\n") || changed == text {
			t.Errorf("%v is\n%s", m, changed)
		}
	}
}

// What survives is what the tests of a package do not notice, and nothing is left of a
// mutant that counts for ever.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a dozen times")
	}
	usual := limitFor
	t.Cleanup(func() { limitFor = usual })
	limitFor = func(time.Duration) time.Duration { return 2 * time.Second }
	var out strings.Builder
	got, err := run(t.Context(), options{pkg: "./testdata/bounds", n: 1000, seed: "any"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got.survived != 1 || !strings.HasSuffix(lines[0], "bounds.go:6: `<=` -> `<`") || got.killed < 8 {
		t.Errorf("%+v\n%s", got, &out)
	}
}

// A package without tests is tested by another one, which is tried before a third.
func TestTestedElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles some times")
	}
	var out strings.Builder
	got, err := run(t.Context(), options{pkg: "./testdata/untested", of: "./testdata/bounds,./testdata/elsewhere", n: 1000, seed: "any"}, &out)
	if err != nil || got.survived != 0 || got.killed != 1 {
		t.Errorf("%+v, %v\n%s", got, err, &out)
	}
}

// The packages of the table are there.
func TestElsewhere(t *testing.T) {
	t.Chdir("../../../..")
	for pkg, tests := range elsewhere {
		if _, err := list(t.Context(), append(tests, pkg)...); err != nil {
			t.Error(err)
		}
	}
}

// The commit chooses, and nothing else does.
func TestChoice(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a dozen times")
	}
	said := func(seed string) string {
		var out strings.Builder
		if _, err := run(t.Context(), options{pkg: "./testdata/bounds", n: 2, seed: seed, tests: "NoSuchTest"}, &out); err != nil {
			t.Fatal(err)
		}
		kept, _, _ := strings.Cut(out.String(), "testdata/bounds at")
		return kept
	}
	if one, again := said("one"), said("one"); one != again || strings.Count(one, "survived: ") != 2 {
		t.Errorf("first\n%s\nthen\n%s", one, again)
	}
	if one := said("one"); one == said("two") && one == said("three") {
		t.Errorf("three seeds choose\n%s", one)
	}
}

func TestMistakes(t *testing.T) {
	for pkg, want := range map[string]string{
		"./testdata/untested": "has no tests",
		"./testdata/none":     "list ./testdata/none",
		"../...":              "must be one package",
	} {
		_, err := run(t.Context(), options{pkg: pkg, n: 1, seed: "any"}, new(strings.Builder))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pkg, err, want)
		}
	}
}
