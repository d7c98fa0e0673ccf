//go:build long

package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutantsOf must return exactly these changes, at least one of each type.
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
	t.Chdir(t.TempDir())
	if err := os.WriteFile("p.go", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := mutantsOf("p.go")
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
		if changed := m.apply(); strings.Count(changed, "\n") != strings.Count(text, "\n") || changed == text {
			t.Errorf("%v is\n%s", m, changed)
		}
	}
}

// A mutant survives if the tests do not notice it. A mutant with an endless
// loop must be killed. The tests may be in another package.
func TestRun(t *testing.T) {
	for _, test := range []struct{ pkg, tests, want string }{
		{"bounds", "", `^survived: testdata/bounds/bounds\.go:6: .<=. -> .<.\n\S+/bounds at any: (\d+) of `},
		{"untested", "./testdata/elsewhere", `^\S+/untested at any: 1 of 1 mutants killed \(100 %\) of 1 places`},
	} {
		var out strings.Builder
		err := run(t.Context(), &out, 1000, "any", "./testdata/"+test.pkg, strings.Fields(test.tests))
		if err != nil || !regexp.MustCompile(test.want).MatchString(out.String()) {
			t.Errorf("%s: %v\n%s", test.pkg, err, &out)
		}
	}
}

// The selection of mutants must depend only on the commit.
func TestCommitSelectsTheMutants(t *testing.T) {
	said := func(seed string) string {
		var out strings.Builder
		if err := run(t.Context(), &out, 2, seed, "./testdata/bounds", []string{"-run", "NoSuchTest"}); err != nil {
			t.Fatal(err)
		}
		kept, _, _ := strings.Cut(out.String(), "/bounds at")
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
		"./testdata/untested": "untested must pass:\n?",
		"./testdata/none":     "list ./testdata/none",
	} {
		if err := run(t.Context(), io.Discard, 1, "any", pkg, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pkg, err, want)
		}
	}
}

// The packages in the table elsewhere must exist.
func TestElsewherePackagesExist(t *testing.T) {
	for pkg, tests := range elsewhere {
		for _, folder := range append(tests, pkg) {
			if _, err := os.Stat("../../../../" + folder); err != nil {
				t.Error(err)
			}
		}
	}
}
